//! Mixtures of experts as instructions.

use host_device::DeviceError;
use host_graph::{Activation, Node};

use super::Compiler;
use crate::moe::{Combine, ExpertProduct, Route, Spread};
use crate::plan::{BufferId, Instr, Rows};

/// Where the tokens of one mixture go.
#[derive(Clone, Copy)]
struct Routes {
    indices: BufferId,
    pairs: BufferId,
    places: BufferId,
    /// Experts of a token.
    k: usize,
    n_experts: usize,
    rows: Rows,
}

impl Compiler<'_> {
    pub(super) fn moe(
        &mut self,
        node: &Node,
        [gate, up, down]: [&str; 3],
        activation: Activation,
        rows: Rows,
    ) -> Result<BufferId, DeviceError> {
        let x = self.input(node.inputs[0], rows)?;
        let weights = self.input(node.inputs[2], rows)?;
        let n_experts = self.info(gate)?.shape[0];
        let routes = self.route(node, n_experts, rows)?;
        let width = node.shape.item_len();
        let routed = self.buffer(rows, routes.k * width);
        self.push(Instr::Spread(Spread { x, pairs: routes.pairs, out: routed }), routed);
        let gate = self.expert_product(routed, gate, &routes)?;
        let up = self.expert_product(routed, up, &routes)?;
        let inner = self.buffer(rows, self.plan.buffers[gate.0].item);
        self.push(Instr::Glu { activation, gate, up, out: inner, codes: None }, inner);
        let routed = self.expert_product(inner, down, &routes)?;
        let out = self.buffer(rows, width);
        Ok(self.push(Instr::Combine(Combine { routed, weights, places: routes.places, out }), out))
    }

    fn route(&mut self, node: &Node, n_experts: usize, rows: Rows) -> Result<Routes, DeviceError> {
        let indices = self.input(node.inputs[1], rows)?;
        let k = self.plan.buffers[indices.0].item;
        if k * self.options.max_step_tokens > super::MAX_INTEGER {
            let what = format!("{k} experts for each of {} tokens in a step", self.options.max_step_tokens);
            return Err(super::unsupported(what, "16777216 pairs of tokens and experts in a step"));
        }
        let (pairs, places) = (self.buffer(rows, k), self.buffer(rows, k));
        self.push(Instr::Route(Route { indices, n_experts, pairs, places }), pairs);
        Ok(Routes { indices, pairs, places, k, n_experts, rows })
    }

    fn expert_product(&mut self, x: BufferId, name: &str, routes: &Routes) -> Result<BufferId, DeviceError> {
        let experts = self.stack(name, routes.n_experts)?;
        let input = self.product_input(x, &experts.matrix);
        let out = self.buffer(routes.rows, routes.k * experts.matrix.n_out);
        let Routes { indices, pairs, .. } = *routes;
        Ok(self.push(Instr::ExpertProduct(ExpertProduct { input, experts, indices, pairs, out }), out))
    }
}
