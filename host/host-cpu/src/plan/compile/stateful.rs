//! State slots and the operations that move them, as room and instructions.

use host_device::DeviceError;
use host_graph::{Body, Node, Op, Slot, SlotId, SlotKind};

use super::{Compiler, unsupported};
use crate::lanes::LANES;
use crate::memory::ALIGN;
use crate::plan::layout::{mark_barriers, place};
use crate::plan::{BufferId, IndexPlace, Instr, KvPlace, Rows, StatePlace};
use crate::stateful::{Conv, GatedDelta, HeadDims, IndexWrite, Scan, ScanBody, SparseSelect, SsmScan};

impl<'a> Compiler<'a> {
    /// Gives every slot its room within a sequence's state, and shared slots that of their donors.
    pub(super) fn place_state(&mut self) {
        for slot in self.slots {
            let place = self.place_slot(slot);
            self.places.push(place);
        }
        for (index, slot) in self.slots.iter().enumerate() {
            if let SlotKind::KvShared { with } = slot.kind {
                self.places[index] = self.places[with.0 as usize];
            }
        }
    }

    /// The place of a slot that keeps something of its own.
    fn place_slot(&mut self, slot: &Slot) -> Option<StatePlace> {
        let capacity = self.options.context_tokens.next_multiple_of(LANES);
        let kv = self.options.kv;
        let element_bytes = kv.element_bytes().expect("a plan with codes was refused before");
        let (place, signature) = match &slot.kind {
            SlotKind::Kv { heads, dim_k, dim_v, .. } => {
                let bytes = |dim| heads * capacity * dim * element_bytes;
                let (keys, values) = (self.room(bytes(dim_k)), self.room(bytes(dim_v)));
                let place = KvPlace { heads: *heads, dim_k: *dim_k, dim_v: *dim_v, keys, values };
                (Some(StatePlace::Kv(place)), kv.signature().to_owned())
            }
            SlotKind::KvShared { with } => (None, format!("kv:shared:{}", with.0)),
            SlotKind::Conv { channels, kernel } => {
                (Some(self.moving(channels * (kernel - 1))), "conv:f32".to_owned())
            }
            SlotKind::Recurrent { shape } => {
                (Some(self.moving(shape.iter().product())), "recurrent:f32".to_owned())
            }
            SlotKind::IndexKeys { dim } => {
                let place = IndexPlace { dim: *dim, keys: self.room(capacity * dim * 4) };
                (Some(StatePlace::IndexKeys(place)), "index-keys:f32".to_owned())
            }
        };
        self.plan.signatures.push(signature);
        self.plan.places.extend(place);
        place
    }

    /// The nodes in an order in which keys and values are written before another layer reads them.
    ///
    /// Inputs alone do not tell: the layer that reads names the slot, not the value.
    pub(super) fn order(&self) -> Result<Vec<usize>, DeviceError> {
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut is_placed = vec![false; self.nodes.len()];
        for index in 0..self.nodes.len() {
            // (node, whether what it needs has been entered)
            let mut stack = vec![(index, false)];
            while let Some((index, is_ready)) = stack.pop() {
                if is_placed[index] {
                    continue;
                }
                if is_ready {
                    is_placed[index] = true;
                    order.push(index);
                    continue;
                }
                stack.push((index, true));
                let inputs = self.nodes[index].inputs.iter().map(|input| input.0 as usize);
                let needed: Vec<usize> = inputs.chain(self.donor(index)?).collect();
                stack.extend(needed.into_iter().rev().map(|needed| (needed, false)));
            }
        }
        Ok(order)
    }

    /// The node that fills the slot that a node shares.
    fn donor(&self, index: usize) -> Result<Option<usize>, DeviceError> {
        let Some(slot) = self.nodes[index].op.slot() else { return Ok(None) };
        let Some(SlotKind::KvShared { with }) = self.slots.get(slot.0 as usize).map(|slot| &slot.kind) else {
            return Ok(None);
        };
        match self.nodes.iter().position(|node| node.op.slot() == Some(*with)) {
            Some(donor) => Ok(Some(donor)),
            None => Err(unsupported(
                format!("keys and values of slot {} that no needed operation writes", with.0),
                "shared slots whose donor leads to the logits",
            )),
        }
    }

    fn moving(&mut self, len: usize) -> StatePlace {
        self.plan.can_trim &= len == 0;
        StatePlace::Moving { offset: self.room(4 * len), len }
    }

    /// The first of so many bytes of a sequence's state.
    fn room(&mut self, bytes: usize) -> usize {
        let offset = self.plan.state_bytes;
        self.plan.state_bytes += bytes.next_multiple_of(ALIGN);
        offset
    }

    /// The slot's place, for an operation that runs for every token.
    pub(super) fn place(&self, node: &Node, slot: SlotId, rows: Rows) -> Result<StatePlace, DeviceError> {
        if rows != Rows::Tokens {
            let what = format!("the operation {} in the head", node.op.name());
            return Err(unsupported(what, "operations with state in layers"));
        }
        Ok(self.places[slot.0 as usize].expect("a shared slot's donor keeps something"))
    }

    fn moving_offset(&self, node: &Node, slot: SlotId, rows: Rows) -> Result<usize, DeviceError> {
        match self.place(node, slot, rows)? {
            StatePlace::Moving { offset, .. } => Ok(offset),
            _ => unreachable!("the builder checked the slot's kind"),
        }
    }

    fn index_place(&self, node: &Node, slot: SlotId, rows: Rows) -> Result<IndexPlace, DeviceError> {
        match self.place(node, slot, rows)? {
            StatePlace::IndexKeys(place) => Ok(place),
            _ => unreachable!("the builder checked the slot's kind"),
        }
    }

    pub(super) fn conv(
        &mut self,
        node: &Node,
        slot: SlotId,
        weight: &str,
        bias: Option<&str>,
        rows: Rows,
    ) -> Result<BufferId, DeviceError> {
        let state = self.moving_offset(node, slot, rows)?;
        let SlotKind::Conv { channels, kernel } = self.slots[slot.0 as usize].kind else {
            unreachable!("the builder checked the slot's kind")
        };
        let weight = self.vector(weight, 0.0, channels * kernel)?;
        let bias = bias.map(|name| self.vector(name, 0.0, channels)).transpose()?;
        let x = self.input(node.inputs[0], rows)?;
        let out = self.buffer(rows, channels);
        Ok(self.push(Instr::Conv(Conv { x, out, channels, kernel, weight, bias, state }), out))
    }

    pub(super) fn gated_delta(
        &mut self,
        node: &Node,
        slot: SlotId,
        rows: Rows,
    ) -> Result<BufferId, DeviceError> {
        let state = self.moving_offset(node, slot, rows)?;
        let [q, k, v, g, beta] = self.five_inputs(node, rows)?;
        let (values, keys) = (node.shape.item(), self.node(node.inputs[0]).shape.item());
        let dims = HeadDims { n_heads: values[0], n_groups: keys[0], dim_v: values[1], dim_k: keys[1] };
        let out = self.buffer(rows, node.shape.item_len());
        Ok(self.push(Instr::GatedDelta(GatedDelta { q, k, v, g, beta, out, dims, state }), out))
    }

    pub(super) fn ssm_scan(
        &mut self,
        node: &Node,
        slot: SlotId,
        rows: Rows,
    ) -> Result<BufferId, DeviceError> {
        let state = self.moving_offset(node, slot, rows)?;
        let [x, dt, a, b, c] = self.five_inputs(node, rows)?;
        let (values, groups) = (node.shape.item(), self.node(node.inputs[3]).shape.item());
        let dims = HeadDims { n_heads: values[0], n_groups: groups[0], dim_v: values[1], dim_k: groups[1] };
        let out = self.buffer(rows, node.shape.item_len());
        Ok(self.push(Instr::SsmScan(SsmScan { x, dt, a, b, c, out, dims, state }), out))
    }

    fn five_inputs(&mut self, node: &Node, rows: Rows) -> Result<[BufferId; 5], DeviceError> {
        let mut buffers = [BufferId(0); 5];
        for (buffer, value) in buffers.iter_mut().zip(&node.inputs) {
            *buffer = self.input(*value, rows)?;
        }
        Ok(buffers)
    }

    pub(super) fn sparse_select(
        &mut self,
        node: &Node,
        slot: SlotId,
        k: usize,
        rows: Rows,
    ) -> Result<BufferId, DeviceError> {
        let place = self.index_place(node, slot, rows)?;
        let (q, key) = (self.input(node.inputs[0], rows)?, self.input(node.inputs[1], rows)?);
        let weights = self.input(node.inputs[2], rows)?;
        self.plan.steps.push(super::step(Instr::IndexWrite(IndexWrite { k: key, place })));
        let n_heads = self.plan.buffers[weights.0].item;
        let out = self.buffer(rows, k);
        Ok(self.push(Instr::SparseSelect(SparseSelect { q, weights, out, n_heads, k, place }), out))
    }

    pub(super) fn scan(
        &mut self,
        node: &Node,
        slot: SlotId,
        body: &Body,
        rows: Rows,
    ) -> Result<BufferId, DeviceError> {
        let state = self.moving_offset(node, slot, rows)?;
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for value in &node.inputs {
            inputs.push(self.input(*value, rows)?);
        }
        let body = self.scan_body(body)?;
        self.plan.scan_bytes = self.plan.scan_bytes.max(body.plan.arena_bytes);
        let out = self.buffer(rows, node.shape.item_len());
        Ok(self.push(Instr::Scan(Scan { inputs, out, body: Box::new(body), state }), out))
    }

    /// Compiles a body as a plan of its own, of one token.
    fn scan_body(&mut self, body: &Body) -> Result<ScanBody, DeviceError> {
        let results = [body.state, body.output];
        let mut inner = Compiler::new(&body.nodes, &[], &results, self.catalogue, self.options);
        inner.is_body = true;
        inner.store = std::mem::take(&mut self.store);
        inner.emit_all()?;
        let inputs: Vec<BufferId> = (0..body.nodes.len())
            .filter(|index| matches!(body.nodes[*index].op, Op::BodyInput { .. }))
            .map(|index| inner.results[index].expect("every node is emitted"))
            .collect();
        let (new_state, output) = (inner.result(body.state), inner.result(body.output));
        let mut fixed: Vec<BufferId> = inputs.iter().copied().chain([new_state, output]).collect();
        fixed.retain(|id| inner.plan.buffers[id.0].rows != Rows::Once);
        fixed.sort_unstable_by_key(|id| id.0);
        fixed.dedup();
        place(&mut inner.plan, 1, &fixed);
        mark_barriers(&mut inner.plan, 1);
        self.store = inner.store;
        Ok(ScanBody { plan: inner.plan, inputs, new_state, output })
    }
}
