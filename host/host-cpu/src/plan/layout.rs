//! Lays buffers out in one arena, reusing room that nothing reads any more, and finds where threads must meet.

use std::collections::HashMap;

use super::{BufferId, CodesId, Instr, Plan, ProductInput, Rows, Step};
use crate::kernels::quantise::BlockMeta;
use crate::matrix::BLOCK;
use crate::memory::ALIGN;

/// How an instruction is split between threads; two that follow each other and split alike need not meet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Split {
    /// Each thread has the same rows in both.
    ByRow(Rows),
    /// In some other way.
    Other,
}

/// A buffer of either kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Resource {
    Floats(BufferId),
    Codes(CodesId),
    /// The state of all sequences at this byte.
    State(usize),
}

impl Instr {
    pub(super) fn reads(&self) -> Vec<Resource> {
        let floats = Resource::Floats;
        match self {
            Instr::RopeTable { .. } => Vec::new(),
            Instr::Embed { ids, .. } => vec![floats(*ids)],
            Instr::Norm { x, .. } | Instr::Quantise { x, .. } | Instr::TakeRows { x, .. } => vec![floats(*x)],
            Instr::Product { input, residual, .. } => {
                let input = match input {
                    ProductInput::Floats(x) => floats(*x),
                    ProductInput::Codes(x) => Resource::Codes(*x),
                };
                std::iter::once(input).chain(residual.map(floats)).collect()
            }
            Instr::Glu { gate, up, .. } => vec![floats(*gate), floats(*up)],
            Instr::Rope { x, .. } => vec![floats(*x)],
            Instr::KvWrite { k, v, .. } => vec![floats(*k), floats(*v)],
            Instr::Attention { q, place, .. } => vec![floats(*q), Resource::State(place.keys)],
            Instr::Route(p) => vec![floats(p.indices)],
            Instr::Spread(p) => vec![floats(p.x), floats(p.pairs)],
            Instr::ExpertProduct(p) => {
                let input = match p.input {
                    ProductInput::Floats(x) => floats(x),
                    ProductInput::Codes(x) => Resource::Codes(x),
                };
                vec![input, floats(p.indices), floats(p.pairs)]
            }
            Instr::Combine(p) => vec![floats(p.routed), floats(p.weights), floats(p.places)],
            Instr::Conv(p) => vec![floats(p.x)],
            Instr::GatedDelta(p) => [p.q, p.k, p.v, p.g, p.beta].map(floats).to_vec(),
            Instr::SsmScan(p) => [p.x, p.dt, p.a, p.b, p.c].map(floats).to_vec(),
            Instr::IndexWrite(p) => vec![floats(p.k)],
            Instr::SparseSelect(p) => vec![floats(p.q), floats(p.weights), Resource::State(p.place.keys)],
            Instr::SelectedAttention(p) => {
                vec![floats(p.q), floats(p.selected), Resource::State(p.place.keys)]
            }
            Instr::Scan(p) => p.inputs.iter().copied().map(floats).collect(),
            Instr::General { inputs, .. } => inputs.iter().map(|x| floats(x.buffer)).collect(),
        }
    }

    /// The rotation tables it reads; they live as long as the step.
    fn ropes(&self) -> Option<usize> {
        match self {
            Instr::Rope { rope, .. } => Some(*rope),
            Instr::KvWrite { rope, .. } => *rope,
            _ => None,
        }
    }

    pub(super) fn writes(&self, plan: &Plan) -> Vec<Resource> {
        let floats = Resource::Floats;
        match self {
            Instr::RopeTable { rope } => vec![floats(plan.ropes[*rope].table)],
            Instr::Embed { out, .. }
            | Instr::Product { out, .. }
            | Instr::Rope { out, .. }
            | Instr::Attention { out, .. }
            | Instr::TakeRows { out, .. }
            | Instr::General { out, .. } => vec![floats(*out)],
            Instr::Norm { out, codes, .. } | Instr::Glu { out, codes, .. } => {
                std::iter::once(floats(*out)).chain(codes.map(Resource::Codes)).collect()
            }
            Instr::Quantise { codes, .. } => vec![Resource::Codes(*codes)],
            Instr::KvWrite { place, .. } => vec![Resource::State(place.keys)],
            Instr::Route(p) => vec![floats(p.pairs), floats(p.places)],
            Instr::Spread(p) => vec![floats(p.out)],
            Instr::ExpertProduct(p) => vec![floats(p.out)],
            Instr::Combine(p) => vec![floats(p.out)],
            Instr::Conv(p) => vec![floats(p.out), Resource::State(p.state)],
            Instr::GatedDelta(p) => vec![floats(p.out), Resource::State(p.state)],
            Instr::SsmScan(p) => vec![floats(p.out), Resource::State(p.state)],
            Instr::IndexWrite(p) => vec![Resource::State(p.place.keys)],
            Instr::SparseSelect(p) => vec![floats(p.out)],
            Instr::SelectedAttention(p) => vec![floats(p.out)],
            Instr::Scan(p) => vec![floats(p.out), Resource::State(p.state)],
        }
    }

    fn split(&self, plan: &Plan) -> Split {
        let rows = |id: &BufferId| Split::ByRow(plan.buffers[id.0].rows);
        match self {
            Instr::RopeTable { .. } => Split::ByRow(Rows::Tokens),
            Instr::Embed { out, .. }
            | Instr::Norm { out, .. }
            | Instr::Glu { out, .. }
            | Instr::Rope { out, .. }
            | Instr::General { out, .. } => rows(out),
            Instr::TakeRows { .. } => Split::ByRow(Rows::Logits),
            Instr::Quantise { x, .. } => rows(x),
            Instr::KvWrite { .. } | Instr::IndexWrite(_) => Split::ByRow(Rows::Tokens),
            Instr::Product { .. }
            | Instr::Attention { .. }
            | Instr::Route(_)
            | Instr::Spread(_)
            | Instr::ExpertProduct(_)
            | Instr::Combine(_)
            | Instr::Conv(_)
            | Instr::GatedDelta(_)
            | Instr::SsmScan(_)
            | Instr::SparseSelect(_)
            | Instr::SelectedAttention(_)
            | Instr::Scan(_) => Split::Other,
        }
    }
}

#[cfg(test)]
impl Instr {
    /// The buffers of floats that it reads and writes.
    pub(crate) fn touches(&self, plan: &Plan) -> (Vec<BufferId>, Vec<BufferId>) {
        let floats = |resources: Vec<Resource>| {
            let id = |resource| if let Resource::Floats(id) = resource { Some(id) } else { None };
            resources.into_iter().filter_map(id).collect::<Vec<_>>()
        };
        let mut reads = floats(self.reads());
        reads.extend(self.ropes().map(|rope| plan.ropes[rope].table));
        (reads, floats(self.writes(plan)))
    }
}

/// Gives every buffer its place in the arena. `fixed` stay for the whole step; each is named once.
pub(super) fn place(plan: &mut Plan, max_rows: usize, fixed: &[BufferId]) {
    let mut last_use: HashMap<Resource, usize> = HashMap::new();
    for (at, step) in plan.steps.iter().enumerate() {
        for resource in step.instr.reads().into_iter().chain(step.instr.writes(plan)) {
            last_use.insert(resource, at);
        }
        if let Some(rope) = step.instr.ropes() {
            last_use.insert(Resource::Floats(plan.ropes[rope].table), at);
        }
    }
    let mut arena = Arena::default();
    for id in fixed {
        let bytes = plan.buffers[id.0].item * max_rows * 4;
        plan.buffers[id.0].offset = arena.take(bytes);
    }
    let mut placed: HashMap<Resource, (usize, usize)> = HashMap::new();
    for at in 0..plan.steps.len() {
        for resource in plan.steps[at].instr.writes(plan) {
            let bytes = match resource {
                Resource::Floats(id) if fixed.contains(&id) || id == plan.logits => continue,
                Resource::State(_) => continue,
                _ if placed.contains_key(&resource) => continue,
                Resource::Floats(id) => plan.buffers[id.0].item * max_rows * 4,
                Resource::Codes(id) => {
                    let stride = plan.codes[id.0].stride;
                    (stride + stride / BLOCK * size_of::<BlockMeta>()) * max_rows
                }
            };
            let offset = arena.take(bytes);
            placed.insert(resource, (offset, bytes));
            match resource {
                Resource::Floats(id) => plan.buffers[id.0].offset = offset,
                Resource::Codes(id) => {
                    let codes = &mut plan.codes[id.0];
                    codes.codes = offset;
                    codes.metas = offset + codes.stride * max_rows;
                }
                Resource::State(_) => {}
            }
        }
        placed.retain(|resource, (offset, bytes)| {
            let is_live = last_use.get(resource).is_some_and(|last| *last > at);
            if !is_live {
                arena.give(*offset, *bytes);
            }
            is_live
        });
    }
    plan.arena_bytes = arena.end;
}

/// A first-fit allocator over one growing range.
#[derive(Default)]
struct Arena {
    end: usize,
    /// Free ranges (offset, bytes), sorted and merged.
    free: Vec<(usize, usize)>,
}

impl Arena {
    fn take(&mut self, bytes: usize) -> usize {
        let bytes = bytes.next_multiple_of(ALIGN);
        if let Some(i) = self.free.iter().position(|(_, room)| *room >= bytes) {
            let (offset, room) = self.free[i];
            if room == bytes {
                self.free.remove(i);
            } else {
                self.free[i] = (offset + bytes, room - bytes);
            }
            return offset;
        }
        let offset = self.end;
        self.end += bytes;
        offset
    }

    fn give(&mut self, offset: usize, bytes: usize) {
        let bytes = bytes.next_multiple_of(ALIGN);
        let at = self.free.partition_point(|(start, _)| *start < offset);
        self.free.insert(at, (offset, bytes));
        if at + 1 < self.free.len() && offset + bytes == self.free[at + 1].0 {
            self.free[at].1 += self.free[at + 1].1;
            self.free.remove(at + 1);
        }
        if at > 0 && self.free[at - 1].0 + self.free[at - 1].1 == offset {
            self.free[at - 1].1 += self.free[at].1;
            self.free.remove(at);
        }
    }
}

/// Marks the steps before which all threads must meet: those that touch bytes which another thread may have
/// written or may still read since the last meeting.
pub(super) fn mark_barriers(plan: &mut Plan, max_rows: usize) {
    let mut since: Vec<usize> = Vec::new();
    for at in 0..plan.steps.len() {
        let needs = since.iter().any(|earlier| conflicts(plan, *earlier, at, max_rows));
        plan.steps[at].barrier_before = needs;
        if needs {
            since.clear();
        }
        since.push(at);
    }
}

fn conflicts(plan: &Plan, earlier: usize, later: usize, max_rows: usize) -> bool {
    let (a, b) = (&plan.steps[earlier].instr, &plan.steps[later].instr);
    let (split_a, split_b) = (a.split(plan), b.split(plan));
    let ranges = |resources: Vec<Resource>| -> Vec<(Space, usize, usize)> {
        resources.into_iter().flat_map(|resource| bytes_of(plan, resource, max_rows)).collect()
    };
    let table = |instr: &Instr| instr.ropes().map(|rope| Resource::Floats(plan.ropes[rope].table));
    let reads_a = ranges(a.reads().into_iter().chain(table(a)).collect());
    let reads_b = ranges(b.reads().into_iter().chain(table(b)).collect());
    let (writes_a, writes_b) = (ranges(a.writes(plan)), ranges(b.writes(plan)));
    let touch = |x: &[(Space, usize, usize)], y: &[(Space, usize, usize)]| {
        x.iter().any(|(kind, from, to)| y.iter().any(|(k, f, t)| kind == k && from < t && f < to))
    };
    let shares = touch(&writes_a, &reads_b) || touch(&writes_a, &writes_b) || touch(&reads_a, &writes_b);
    if !shares {
        return false;
    }
    // Rows of the same buffers split alike stay with their thread; rows of different size that merely share
    // the room do not.
    let same_rows = split_a == split_b && matches!(split_a, Split::ByRow(_));
    !(same_rows && same_buffers_only(plan, a, b, max_rows))
}

/// Whether every overlap between the two is one buffer used by both.
fn same_buffers_only(plan: &Plan, a: &Instr, b: &Instr, max_rows: usize) -> bool {
    let all = |instr: &Instr| -> Vec<Resource> {
        let table = instr.ropes().map(|rope| Resource::Floats(plan.ropes[rope].table));
        instr.reads().into_iter().chain(instr.writes(plan)).chain(table).collect()
    };
    all(a).iter().all(|x| {
        all(b).iter().all(|y| {
            let overlap = bytes_of(plan, *x, max_rows).into_iter().any(|(kind, from, to)| {
                bytes_of(plan, *y, max_rows).into_iter().any(|(k, f, t)| kind == k && from < t && f < to)
            });
            !overlap || x == y
        })
    })
}

/// Where bytes lie.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    Arena,
    State,
    Logits,
}

/// (space, first byte, end).
fn bytes_of(plan: &Plan, resource: Resource, max_rows: usize) -> Vec<(Space, usize, usize)> {
    match resource {
        // Constants are never written in a step.
        Resource::Floats(id) if plan.buffers[id.0].rows == Rows::Once => Vec::new(),
        Resource::Floats(id) if id == plan.logits => vec![(Space::Logits, 0, 1)],
        Resource::Floats(id) => {
            let buffer = plan.buffers[id.0];
            vec![(Space::Arena, buffer.offset, buffer.offset + buffer.item * max_rows * 4)]
        }
        Resource::Codes(id) => {
            let codes = plan.codes[id.0];
            let end = codes.metas + codes.stride / BLOCK * size_of::<BlockMeta>() * max_rows;
            vec![(Space::Arena, codes.codes, end)]
        }
        Resource::State(at) => vec![(Space::State, at, at + 1)],
    }
}

/// A step whose barrier is not decided yet.
pub(super) fn step(instr: Instr) -> Step {
    Step { instr, barrier_before: true }
}
