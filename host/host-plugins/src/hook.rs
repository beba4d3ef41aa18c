//! The hooks that a plugin offers to the host.

use std::fmt;
use std::sync::Arc;

use host_graph::{Catalogue, Graph};

use crate::error::PluginError;
use crate::package::PluginName;

/// Builds the graph of a model from its `config.json` and the names and shapes of its tensors.
pub trait GraphPlugin: Send + Sync {
    /// Which plugin this is.
    fn name(&self) -> &PluginName;

    /// The graph. `config` is the text of `config.json`; `catalogue` holds the checkpoint's tensors.
    ///
    /// Each call runs in a fresh guest, so a call that failed leaves nothing behind.
    ///
    /// # Errors
    /// [`PluginError`]: a refused config or builder call, a fault of the guest, or a budget spent.
    fn build(&self, config: &str, catalogue: Catalogue) -> Result<Graph, PluginError>;
}

/// A plugin that several hold.
impl<P: GraphPlugin + ?Sized> GraphPlugin for Arc<P> {
    fn name(&self) -> &PluginName {
        (**self).name()
    }

    fn build(&self, config: &str, catalogue: Catalogue) -> Result<Graph, PluginError> {
        (**self).build(config, catalogue)
    }
}

/// Where a plugin's log lines go.
#[derive(Clone)]
pub struct LogSink(Arc<Listener>);

/// Hears a plugin's name and one line.
type Listener = dyn Fn(&PluginName, &str) + Send + Sync;

impl LogSink {
    /// Calls `write` for each line, with the plugin it comes from.
    pub fn new(write: impl Fn(&PluginName, &str) + Send + Sync + 'static) -> Self {
        LogSink(Arc::new(write))
    }

    /// Drops every line.
    pub fn discard() -> Self {
        LogSink::new(|_, _| {})
    }

    /// Hands on one line.
    pub fn write(&self, plugin: &PluginName, line: &str) {
        (self.0)(plugin, line);
    }
}

impl fmt::Debug for LogSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogSink")
    }
}
