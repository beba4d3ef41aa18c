//! From canonical text back to a graph: the reader of what [`Graph::text`] writes.
//!
//! A text decides nothing by itself: every line becomes a call of a [`GraphBuilder`], so each operation is
//! checked again, against a catalogue and within limits. What comes out must have that very text, to the byte;
//! another order, a spare blank or a number in another form is refused. Memory and time grow with the text's
//! length alone.

mod line;
mod op;

use crate::builder::{GraphBuilder, Limits};
use crate::error::{BuildError, BuildErrorKind};
use crate::graph::{Catalogue, Graph, Section, SlotId, SlotKind, Value};
use crate::op::Op;
use crate::shape::{Shape, ValueType};
use crate::text_error::TextError;
use line::Line;

/// The first line: the form's name and version.
pub(crate) const VERSION_LINE: &str = "tenon-graph 1";

impl Graph {
    /// The graph of a canonical text over the tensors of `catalogue`.
    ///
    /// # Errors
    /// [`TextError`] with the line, what was expected there and what stands there.
    pub fn parse(text: &str, catalogue: Catalogue, limits: Limits) -> Result<Graph, TextError> {
        let builder = GraphBuilder::new(catalogue, limits);
        let graph = Parser { lines: Lines::of(text), builder, slots: Vec::new() }.graph()?;
        same_text(&graph.text(), text)?;
        Ok(graph)
    }
}

/// What a call of the builder gives back.
type Built<T> = Result<T, BuildError>;

struct Parser<'a> {
    lines: Lines<'a>,
    builder: GraphBuilder,
    /// The builder's handle of each slot of the text.
    slots: Vec<SlotId>,
}

/// A line `%i = name(inputs) attributes : type`, its attributes not read yet.
struct NodeLine<'a> {
    name: &'a str,
    inputs: Vec<u32>,
    attributes: Line<'a>,
    value_type: ValueType,
    shape: Shape,
}

impl<'a> Parser<'a> {
    fn graph(mut self) -> Result<Graph, TextError> {
        self.lines.exactly(VERSION_LINE)?;
        self.declare_slots()?;
        let mut n_nodes = 0;
        let output = loop {
            let mut line = self.lines.next("a node, a section or the output")?;
            if line.eat("section ") {
                self.builder.section(section(&mut line)?);
                line.end()?;
            } else if line.eat("output ") {
                let value = line.value()?;
                line.end()?;
                break (line.number(), Value(value));
            } else {
                self.node(line, n_nodes)?;
                n_nodes += 1;
            }
        };
        self.ignored()?;
        self.lines.at_end()?;
        let (number, output) = output;
        self.builder.finish(output).map_err(|source| TextError::Build { line: number, source })
    }

    /// Slots that share come after those they read, whatever their numbers: the builder wants donors first.
    fn declare_slots(&mut self) -> Result<(), TextError> {
        let mut declared = Vec::new();
        while let Some(mut line) = self.lines.next_if("slot ") {
            line.keyword(&declared.len().to_string())?;
            line.keyword(" layer=")?;
            let layer = line.number_of("a layer")?;
            let kind = op::slot_kind(&mut line)?;
            line.end()?;
            declared.push((line.number(), layer, kind));
        }
        let absent = SlotId(u32::MAX);
        self.slots = vec![absent; declared.len()];
        for shares in [false, true] {
            for (i, (number, layer, kind)) in declared.iter().enumerate() {
                let kind = match kind {
                    SlotKind::KvShared { with } if shares => SlotKind::KvShared {
                        with: self.slots.get(with.0 as usize).copied().unwrap_or(absent),
                    },
                    SlotKind::KvShared { .. } => continue,
                    _ if shares => continue,
                    kind => kind.clone(),
                };
                let slot = self.builder.slot(*layer, kind);
                self.slots[i] = slot.map_err(|source| TextError::Build { line: *number, source })?;
            }
        }
        Ok(())
    }

    fn node(&mut self, line: Line<'a>, index: usize) -> Result<(), TextError> {
        let number = line.number();
        let node = node_line(line, index)?;
        let inputs: Vec<Value> = node.inputs.iter().map(|input| Value(*input)).collect();
        let added = match node.name {
            "scan" => self.scan(&node, &inputs, number)?,
            _ => {
                let op = self.op(&node)?;
                at(number, self.builder.add(op, &inputs))?
            }
        };
        self.same_type(&node, added, number)
    }

    /// The body follows the loop's own line, its values numbered from 0.
    fn scan(&mut self, node: &NodeLine<'a>, inputs: &[Value], number: usize) -> Result<Value, TextError> {
        let mut attributes = node.attributes.clone();
        let slot = self.slot(op::slot(&mut attributes)?);
        attributes.end()?;
        let begun = at(number, self.builder.begin_scan(slot, inputs))?;
        // The builder gives the body's values numbers that follow each other.
        let first = begun.first().map_or(0, |state| state.0);
        let local = |value: u32| Value(first.saturating_add(value));
        let mut index = 0;
        loop {
            let mut line = self.lines.next("the loop's body")?;
            line.keyword("  ")?;
            if line.eat("state ") {
                let state = line.value()?;
                line.keyword(" output ")?;
                let output = line.value()?;
                line.end()?;
                return at(line.number(), self.builder.end_scan(local(state), local(output)));
            }
            let number = line.number();
            let inner = node_line(line, index)?;
            let added = match begun.get(index) {
                Some(given) => {
                    op::body_input(&inner, index)?;
                    *given
                }
                None => {
                    let inputs: Vec<Value> = inner.inputs.iter().map(|input| local(*input)).collect();
                    let op = self.op(&inner)?;
                    at(number, self.builder.add(op, &inputs))?
                }
            };
            self.same_type(&inner, added, number)?;
            index += 1;
        }
    }

    fn op(&self, node: &NodeLine<'a>) -> Result<Op, TextError> {
        op::op(node, |slot| self.slot(slot))
    }

    /// The builder's handle of the text's slot; one that no line declares stays unknown.
    fn slot(&self, slot: SlotId) -> SlotId {
        self.slots.get(slot.0 as usize).copied().unwrap_or(SlotId(u32::MAX))
    }

    fn same_type(&self, node: &NodeLine<'a>, added: Value, line: usize) -> Result<(), TextError> {
        let known = self.builder.visible(added).expect("a value just given is visible");
        if known.shape == node.shape && known.value_type == node.value_type {
            return Ok(());
        }
        let expected = format!("{}{}", known.value_type, known.shape);
        Err(TextError::Type { line, expected, found: format!("{}{}", node.value_type, node.shape) })
    }

    fn ignored(&mut self) -> Result<(), TextError> {
        while let Some(mut line) = self.lines.next_if("ignore ") {
            let name = line.name()?;
            line.end()?;
            if self.builder.tensor(&name).is_none() {
                let kind = BuildErrorKind::MissingTensor { name, nearest: Vec::new() };
                let source = BuildError { op: "ignore", ordinal: 0, section: Section::Head, kind };
                return Err(TextError::Build { line: line.number(), source });
            }
            self.builder.ignore(&name);
        }
        Ok(())
    }
}

fn at<T>(line: usize, built: Built<T>) -> Result<T, TextError> {
    built.map_err(|source| TextError::Build { line, source })
}

fn section(line: &mut Line<'_>) -> Result<Section, TextError> {
    if line.eat("embed") {
        Ok(Section::Embed)
    } else if line.eat("head") {
        Ok(Section::Head)
    } else {
        line.keyword("layer[")?;
        let layer = line.number_of("a layer")?;
        line.keyword("]")?;
        Ok(Section::Layer(layer))
    }
}

fn node_line(mut line: Line<'_>, index: usize) -> Result<NodeLine<'_>, TextError> {
    line.keyword(&format!("%{index} = "))?;
    let name = line.word("an operation")?;
    line.keyword("(")?;
    let mut inputs = Vec::new();
    while !line.eat(")") {
        if !inputs.is_empty() {
            line.keyword(", ")?;
        }
        inputs.push(line.value()?);
    }
    let (attributes, mut of_type) = line.split_type()?;
    let value_type = op::value_type(&mut of_type)?;
    let shape = op::shape(&mut of_type)?;
    of_type.end()?;
    Ok(NodeLine { name, inputs, attributes, value_type, shape })
}

/// The text's lines, each ended by a line feed, with their numbers.
struct Lines<'a> {
    rest: &'a str,
    number: usize,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        Lines { rest: text, number: 0 }
    }

    /// The next line, if it begins so; what it begins with is read.
    fn next_if(&mut self, start: &str) -> Option<Line<'a>> {
        let mut line = self.rest.starts_with(start).then(|| self.next(start).ok())??;
        line.eat(start).then_some(line)
    }

    fn next(&mut self, expected: &str) -> Result<Line<'a>, TextError> {
        let Some((line, rest)) = self.rest.split_once('\n') else {
            let cut = Line::new(self.number + 1, self.rest);
            return Err(cut.unexpected(&format!("{expected}, and a line feed")));
        };
        self.rest = rest;
        self.number += 1;
        Ok(Line::new(self.number, line))
    }

    fn exactly(&mut self, expected: &str) -> Result<(), TextError> {
        let mut line = self.next(expected)?;
        line.keyword(expected)?;
        line.end()
    }

    fn at_end(&self) -> Result<(), TextError> {
        match self.rest {
            "" => Ok(()),
            rest => {
                let line = rest.split('\n').next().unwrap_or_default();
                Err(Line::new(self.number + 1, line).unexpected("an ignored tensor, or the end of the text"))
            }
        }
    }
}

/// Whether the text is the canonical one, to the byte.
fn same_text(canonical: &str, text: &str) -> Result<(), TextError> {
    if canonical == text {
        return Ok(());
    }
    let (mut expected, mut found) = (canonical.split('\n'), text.split('\n'));
    let mut line = 1;
    loop {
        match (expected.next(), found.next()) {
            (Some(one), Some(other)) if one == other => line += 1,
            (one, other) => {
                let shown = |line: Option<&str>| line::shown(line.unwrap_or_default());
                return Err(TextError::Form { line, expected: shown(one), found: shown(other) });
            }
        }
    }
}
