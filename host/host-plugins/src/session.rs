//! One run of the graph hook: the builder with its budget, its log and the refusals it gave.

use host_graph::{
    BuildError, Catalogue, Graph, GraphBuilder, Op, Section, Shape, SlotId, SlotKind, TensorFacts, Value,
};

use crate::budget::Budget;
use crate::hook::LogSink;
use crate::package::PluginName;

/// What both runtimes put between guest and builder.
///
/// It remembers the last refusal, so that a guest which passes it on unchanged is reported with the
/// builder's own error and not with a copy that went through the guest.
#[derive(Debug)]
pub struct GraphSession {
    builder: GraphBuilder,
    plugin: PluginName,
    log: LogSink,
    log_left: usize,
    refusal: Option<BuildError>,
}

impl GraphSession {
    /// An empty graph over the tensors of a checkpoint.
    pub fn new(plugin: PluginName, catalogue: Catalogue, budget: &Budget, log: LogSink) -> Self {
        GraphSession {
            builder: GraphBuilder::new(catalogue, budget.graph),
            plugin,
            log,
            log_left: budget.log_bytes,
            refusal: None,
        }
    }

    /// Adds one operation.
    ///
    /// # Errors
    /// [`BuildError`], which is remembered.
    pub fn add(&mut self, op: Op, inputs: &[Value]) -> Result<Value, BuildError> {
        let result = self.builder.add(op, inputs);
        self.remember(result)
    }

    /// Declares a state slot.
    ///
    /// # Errors
    /// As [`GraphSession::add`].
    pub fn slot(&mut self, layer: u32, kind: SlotKind) -> Result<SlotId, BuildError> {
        let result = self.builder.slot(layer, kind);
        self.remember(result)
    }

    /// The same elements with other fixed dimensions; B and T stay.
    ///
    /// # Errors
    /// As [`GraphSession::add`].
    pub fn reshape(&mut self, x: Value, dims: &[usize]) -> Result<Value, BuildError> {
        let shape = self.shape(x)?.with_item(dims);
        self.add(Op::Reshape { shape }, &[x])
    }

    /// Cuts a value into parts along one axis.
    ///
    /// # Errors
    /// As [`GraphSession::add`].
    pub fn split(&mut self, x: Value, sizes: &[usize], axis: usize) -> Result<Vec<Value>, BuildError> {
        let result = self.builder.split(x, sizes, axis);
        self.remember(result)
    }

    /// The k largest of the last dimension: (values, indices).
    ///
    /// # Errors
    /// As [`GraphSession::add`].
    pub fn topk(&mut self, x: Value, k: usize) -> Result<(Value, Value), BuildError> {
        let result = self.builder.topk(x, k);
        self.remember(result)
    }

    /// Begins a loop over T: the state and each input at this step.
    ///
    /// # Errors
    /// As [`GraphSession::add`].
    pub fn begin_scan(&mut self, slot: SlotId, inputs: &[Value]) -> Result<Vec<Value>, BuildError> {
        let result = self.builder.begin_scan(slot, inputs);
        self.remember(result)
    }

    /// Ends the loop: its outputs.
    ///
    /// # Errors
    /// As [`GraphSession::add`].
    pub fn end_scan(&mut self, state: Value, output: Value) -> Result<Value, BuildError> {
        let result = self.builder.end_scan(state, output);
        self.remember(result)
    }

    /// The shape of a value.
    ///
    /// # Errors
    /// As [`GraphSession::add`].
    pub fn shape(&mut self, value: Value) -> Result<Shape, BuildError> {
        let result = self.builder.shape(value).cloned();
        self.remember(result)
    }

    /// Sets the section of what follows.
    pub fn section(&mut self, section: Section) {
        self.builder.section(section);
    }

    /// A checkpoint tensor's facts.
    pub fn tensor(&self, name: &str) -> Option<&TensorFacts> {
        self.builder.tensor(name)
    }

    /// Declares a checkpoint tensor as not needed.
    pub fn ignore(&mut self, name: &str) {
        self.builder.ignore(name);
    }

    /// Hands on a log line. `false` when the budget for log text is spent: the guest must end.
    pub fn log(&mut self, line: &str) -> bool {
        let Some(left) = self.log_left.checked_sub(line.len() + 1) else { return false };
        self.log_left = left;
        self.log.write(&self.plugin, line);
        true
    }

    /// The last refusal.
    pub fn last_refusal(&self) -> Option<&BuildError> {
        self.refusal.as_ref()
    }

    /// Ends the graph with its logits.
    ///
    /// # Errors
    /// Those of [`GraphBuilder::finish`].
    pub fn finish(self, output: Value) -> Result<Graph, BuildError> {
        self.builder.finish(output)
    }

    fn remember<T>(&mut self, result: Result<T, BuildError>) -> Result<T, BuildError> {
        if let Err(refusal) = &result {
            self.refusal = Some(refusal.clone());
        }
        result
    }
}

/// Keys of `config.json` that every model-graph plugin accepts, because they change nothing.
pub fn harmless_config_keys() -> impl Iterator<Item = &'static str> {
    let text = include_str!("../../../plugin-sdk/wit/0.2/harmless-config-keys.txt");
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}
