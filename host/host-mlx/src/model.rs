//! A loaded model with its sequences, on the worker's thread: groups them for a step, builds it, begins it,
//! and builds the next one ahead where the next tokens can be foreseen.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use host_graph::SlotKind;
use mlx_rs::{Array, Dtype};
use mlx_sys as sys;

use crate::demand::Choice;
use crate::eval;
use crate::fault::Fault;
use crate::kv::Kv;
use crate::ops;
use crate::program::{Program, Tables};
use crate::replay::{self, Model as Loaded, Replay};
use crate::state::{Columns, Mark, SlotState};
use crate::stateful::{Group, Part, Step};
use crate::weights::shape_of;

/// New tokens of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) sequence: u32,
    pub(crate) tokens: Vec<u32>,
    pub(crate) wants: Wants,
}

/// Which of a run's tokens need logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    None,
    Last,
    All,
}

/// What a step tells at once; the logits themselves stay here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Of each row of logits the index of its largest entry; `None` for a row with a NaN.
    pub(crate) largest: Vec<Option<u32>>,
}

/// See the module.
pub(crate) struct Model {
    model: OneThread<Rc<Loaded>>,
    /// Steps of one token a sequence, once one was asked for.
    replay: OneThread<Option<Replay>>,
    /// Values that no token changes; filled by the first step.
    once: Option<HashMap<usize, Array>>,
    kv: Kv,
    context_tokens: usize,
    groups: BTreeMap<u32, Group>,
    next_group: u32,
    /// Where each sequence lives: group and row.
    places: BTreeMap<u32, (u32, usize)>,
    logits: Option<Logits>,
    ahead: Option<Ahead>,
    /// What the last step would give next, if each run goes on with its most likely token.
    foreseen: Option<(Vec<u32>, Vec<Option<u32>>)>,
    /// How often in a row the tokens were as foreseen.
    n_foreseen: usize,
}

/// A value that one thread makes use of: the worker's, from its first job on.
struct OneThread<T>(T);

#[expect(unsafe_code, reason = "says what the worker keeps to")]
// SAFETY: a model is built on one thread, moved whole to its worker before the first step, and stays there until it
// is dropped there; no other reference to its parts exists outside of it.
unsafe impl<T> Send for OneThread<T> {}

/// In place of the largest entry's index where an entry is no number. No vocabulary is that large.
const NOT_A_NUMBER: u32 = u32::MAX;

/// The logits of a step, perhaps still being computed.
#[derive(Clone)]
pub(crate) struct Logits {
    /// `[rows, V]` in the activation dtype.
    pub(crate) rows: Array,
    /// uint32 `[rows]`: the index of the largest, [`NOT_A_NUMBER`] for a row with a NaN.
    pub(crate) largest: Array,
}

/// A step that runs before anybody asked for it.
struct Ahead {
    sequences: Vec<u32>,
    logits: Logits,
    group: u32,
    marks: Vec<SlotMark>,
}

enum SlotMark {
    Columns(Mark),
    Moving(Array),
    Shared,
}

impl Model {
    pub(crate) fn new(
        program: Program,
        tables: Tables,
        kernels: Choice,
        kv: Kv,
        context_tokens: usize,
    ) -> Self {
        Model {
            model: OneThread(Rc::new(Loaded { program, tables, kernels })),
            replay: OneThread(None),
            once: None,
            kv,
            context_tokens,
            groups: BTreeMap::new(),
            next_group: 0,
            places: BTreeMap::new(),
            logits: None,
            ahead: None,
            foreseen: None,
            n_foreseen: 0,
        }
    }

    /// Starts an empty sequence.
    pub(crate) fn start(&mut self, sequence: u32) -> Result<(), Fault> {
        let slots = self.empty_slots()?;
        self.alone(sequence, Group { pads: vec![0], offset: 0, slots, place: None });
        Ok(())
    }

    /// Starts a sequence with another's tokens.
    pub(crate) fn fork(&mut self, from: u32, to: u32) -> Result<(), Fault> {
        self.cancel_ahead();
        let (group, row) = self.places[&from];
        let copy = self.row_of(group, row)?;
        self.alone(to, copy);
        Ok(())
    }

    /// Drops all but the first `len` tokens; whether the state can go back so far.
    pub(crate) fn trim(&mut self, sequence: u32, len: usize) -> Result<bool, Fault> {
        self.cancel_ahead();
        let empty = if len == 0 { Some(self.empty_slots()?) } else { None };
        let group = self.separate(sequence)?;
        let group = self.groups.get_mut(&group).expect("separated just now");
        if let Some(slots) = empty {
            (group.offset, group.slots) = (0, slots);
            return Ok(true);
        }
        for slot in &mut group.slots {
            if let SlotState::Columns(columns) = slot {
                columns.settle()?;
            }
        }
        let from = group.offset;
        let can_trim = |slot: &SlotState| match slot {
            SlotState::Shared => true,
            SlotState::Columns(columns) => columns.clone().trim(from, len),
            SlotState::Moving(_) => from == len,
        };
        if !group.slots.iter().all(can_trim) {
            return Ok(false);
        }
        for slot in &mut group.slots {
            if let SlotState::Columns(columns) = slot {
                columns.trim(from, len);
            }
        }
        group.offset = len;
        Ok(true)
    }

    /// Ends a sequence. Its row is freed with its group's next change.
    pub(crate) fn release(&mut self, sequence: u32) {
        self.cancel_ahead();
        if let Some((group, _)) = self.places.remove(&sequence)
            && !self.places.values().any(|(other, _)| *other == group)
        {
            self.groups.remove(&group);
        }
    }

    /// Appends checked runs; the logits are being computed when it returns.
    pub(crate) fn step(&mut self, runs: &[Run]) -> Result<Told, Fault> {
        let sequences: Vec<u32> = runs.iter().map(|run| run.sequence).collect();
        let is_decode = runs.iter().all(|run| run.tokens.len() == 1 && run.wants == Wants::Last);
        let as_foreseen = is_decode && self.is_foreseen(&sequences, runs);
        self.n_foreseen = if as_foreseen { self.n_foreseen + 1 } else { 0 };
        let logits = match self.ahead.take() {
            Some(ahead) if as_foreseen && ahead.sequences == sequences => Some(ahead.logits),
            Some(ahead) => {
                self.undo(ahead);
                self.begin(runs)?
            }
            None => self.begin(runs)?,
        };
        self.logits = logits;
        let Some(logits) = self.logits.clone() else {
            self.foreseen = None;
            return Ok(Told::default());
        };
        if is_decode && self.n_foreseen > 0 {
            self.begin_ahead(&sequences, &logits)?;
        }
        let ids = ops::read_ints(&logits.largest)?;
        let largest: Vec<Option<u32>> = ids.iter().map(|id| (*id != NOT_A_NUMBER).then_some(*id)).collect();
        self.foreseen = (largest.len() == sequences.len()).then(|| (sequences, largest.clone()));
        Ok(Told { largest })
    }

    /// Copies one row of the last step's logits.
    pub(crate) fn read(&self, row: usize) -> Result<Vec<f32>, Fault> {
        let Some(logits) = &self.logits else { return Ok(Vec::new()) };
        ops::read_floats(&ops::slice(&logits.rows, 0, row, row + 1)?)
    }

    fn is_foreseen(&self, sequences: &[u32], runs: &[Run]) -> bool {
        let Some((known, largest)) = &self.foreseen else { return false };
        known == sequences && runs.iter().zip(largest).all(|(run, largest)| Some(run.tokens[0]) == *largest)
    }

    /// Builds the step in which every sequence goes on with its most likely token, and begins it.
    ///
    /// Their ids are known on the device only; everything else about the step is known here.
    fn begin_ahead(&mut self, sequences: &[u32], logits: &Logits) -> Result<(), Fault> {
        let group_id = self.places[&sequences[0]].0;
        let group = &self.groups[&group_id];
        let rows_in_order = sequences.iter().enumerate().all(|(row, id)| self.places[id] == (group_id, row));
        let has_room = group.pads.iter().all(|pad| group.offset - pad < self.context_tokens);
        if !rows_in_order || group.pads.len() != sequences.len() || !has_room {
            return Ok(());
        }
        let mark = |slot: &SlotState| match slot {
            SlotState::Shared => SlotMark::Shared,
            SlotState::Columns(columns) => SlotMark::Columns(columns.mark()),
            SlotState::Moving(state) => SlotMark::Moving(state.clone()),
        };
        let marks = group.slots.iter().map(mark).collect();
        let begun = self.build(&[(group_id, 1)], logits.largest.clone(), None)?;
        self.ahead = begun.map(|logits| Ahead { sequences: sequences.to_vec(), logits, group: group_id, marks });
        Ok(())
    }

    fn cancel_ahead(&mut self) {
        if let Some(ahead) = self.ahead.take() {
            self.undo(ahead);
        }
        self.foreseen = None;
    }

    /// Takes the group of a step that nobody asked for back to where it was.
    fn undo(&mut self, ahead: Ahead) {
        let Some(group) = self.groups.get_mut(&ahead.group) else { return };
        group.offset -= 1;
        for (slot, mark) in group.slots.iter_mut().zip(ahead.marks) {
            match (slot, mark) {
                (SlotState::Columns(columns), SlotMark::Columns(mark)) => columns.back_to(mark),
                (SlotState::Moving(state), SlotMark::Moving(before)) => *state = before,
                _ => {}
            }
        }
    }

    /// Groups the runs, builds their step and begins it; `None` when no logits are wanted.
    fn begin(&mut self, runs: &[Run]) -> Result<Option<Logits>, Fault> {
        let singles: Vec<usize> = (0..runs.len()).filter(|i| runs[*i].tokens.len() == 1).collect();
        let mut order = Vec::with_capacity(runs.len());
        let mut parts = Vec::new();
        if !singles.is_empty() {
            let ids: Vec<u32> = singles.iter().map(|i| runs[*i].sequence).collect();
            parts.push((self.together(&ids)?, 1));
            order.extend(singles);
        }
        for (index, run) in runs.iter().enumerate().filter(|(_, run)| run.tokens.len() > 1) {
            parts.push((self.separate(run.sequence)?, run.tokens.len()));
            order.push(index);
        }
        let (tokens, wanted) = flat(runs, &order);
        let ids = ops::from_ids(&tokens, &[tokens.len() as i32]);
        let is_all = wanted.iter().copied().eq(0..tokens.len());
        self.build(&parts, ids, (!is_all).then_some(wanted))
    }

    /// Builds one step of some groups over uint32 ids and begins it; `None` when no logits are wanted. The groups' states
    /// move on.
    fn build(
        &mut self,
        parts: &[(u32, usize)],
        ids: Array,
        wanted: Option<Vec<usize>>,
    ) -> Result<Option<Logits>, Fault> {
        let model = self.model.0.clone();
        let once = match self.once.take() {
            Some(once) => once,
            None => eval::run_once(&model.program, &model.tables)?,
        };
        let replays = model.program.plan.is_ok() && model.kernels.replays(model.tables.backend);
        if let ([(id, 1)], None, true, Kv::Plain(dtype)) = (parts, &wanted, replays, self.kv) {
            if self.replay.0.is_none() {
                self.replay.0 = Some(Replay::new(model, once.clone())?);
            }
            self.once = Some(once);
            return self.build_replayed(*id, &ids, dtype).map(Some);
        }
        let mut taken: Vec<(u32, Group, usize)> = Vec::with_capacity(parts.len());
        for (id, len) in parts {
            let group = self.groups.remove(id).expect("groups of a step are there");
            taken.push((*id, group, *len));
        }
        let none_wanted = wanted.as_ref().is_some_and(Vec::is_empty);
        let mut first = 0;
        let mut views = Vec::with_capacity(taken.len());
        for (_, group, len) in &mut taken {
            let n_tokens = group.pads.len() * *len;
            views.push(Part::new(group, first, *len));
            first += n_tokens;
        }
        let mut step = Step {
            parts: views,
            slots: &model.program.slots,
            backend: model.tables.backend,
            dtype: model.program.dtype,
            kv: self.kv,
            kernels: &model.kernels,
            ids: ops::cast(&ids, Dtype::Int32)?,
            wanted,
            position_array: None,
        };
        let built = eval::run(&model.program, &model.tables, &once, &mut step)
            .and_then(|rows| if none_wanted { Ok(None) } else { Logits::of(rows).map(Some) });
        drop(step);
        self.once = Some(once);
        for (id, mut group, len) in taken {
            if built.is_ok() {
                group.offset += len;
            }
            self.groups.insert(id, group);
        }
        let logits = built?;
        let mut wanted_arrays: Vec<&Array> = Vec::new();
        for (id, _) in parts {
            for slot in &self.groups[id].slots {
                match slot {
                    SlotState::Moving(state) => wanted_arrays.push(state),
                    // Columns that the logits depend on are computed with them.
                    SlotState::Columns(columns) if logits.is_none() => wanted_arrays.extend(columns.arrays()),
                    _ => {}
                }
            }
        }
        if let Some(logits) = &logits {
            wanted_arrays.extend([&logits.rows, &logits.largest]);
        }
        ops::async_eval(wanted_arrays)?;
        Ok(logits)
    }

    /// Replays one step of a group in which each row has one token, and begins it.
    fn build_replayed(&mut self, id: u32, ids: &Array, dtype: Dtype) -> Result<Logits, Fault> {
        let replay = self.replay.0.as_ref().expect("made by the caller");
        let group = self.groups.get_mut(&id).expect("groups of a step are there");
        let rows = group.pads.len() as i32;
        let mut held = Vec::with_capacity(group.slots.len());
        for (slot, state) in self.model.0.program.slots.iter().zip(&mut group.slots) {
            let (SlotKind::Kv { heads, dim_k, .. }, SlotState::Columns(columns)) = (&slot.kind, state) else {
                return Err(Fault("a replayed step has columns in each slot".to_owned()));
            };
            let shape = [rows, *heads as i32, 0, *dim_k as i32];
            held.push(columns.open_page(group.offset, shape, dtype)?);
        }
        let (first, filled, capacity) =
            held.first().map_or((group.offset, 0, 0), |held| (held.first, held.filled, held.capacity()));
        let at = [first, filled, capacity];
        let mut place = match group.place.take() {
            Some(known) if known.is_at(at) => known,
            _ => replay::Place::new(self.model.0.tables.backend, at, &group.pads)?,
        };
        let (logits, pages) = replay.step(ids, &mut place, &held.iter().collect::<Vec<_>>())?;
        drop(held);
        group.place = Some(place);
        for (state, page) in group.slots.iter_mut().zip(pages) {
            if let SlotState::Columns(columns) = state {
                columns.turn_page(page);
            }
        }
        group.offset += 1;
        Ok(logits)
    }

    fn empty_slots(&self) -> Result<Vec<SlotState>, Fault> {
        let empty = |kind: &SlotKind| {
            let zeros = |dims: &[usize], dtype| {
                let shape: Vec<i32> = [1].into_iter().chain(shape_of(dims)).collect();
                let zeros = ops::zeros(&shape, dtype)?;
                ops::eval([&zeros])?;
                Ok(SlotState::Moving(zeros))
            };
            match kind {
                SlotKind::Kv { window, .. } => Ok(SlotState::Columns(Columns::new(*window))),
                SlotKind::IndexKeys { .. } => Ok(SlotState::Columns(Columns::new(None))),
                SlotKind::KvShared { .. } => Ok(SlotState::Shared),
                SlotKind::Conv { channels, kernel } => zeros(&[*kernel - 1, *channels], self.model.0.program.dtype),
                SlotKind::Recurrent { shape } => zeros(shape, Dtype::Float32),
            }
        };
        self.model.0.program.slots.iter().map(|slot| empty(&slot.kind)).collect()
    }

    fn alone(&mut self, sequence: u32, group: Group) -> u32 {
        let id = self.next_group;
        self.next_group += 1;
        self.groups.insert(id, group);
        self.places.insert(sequence, (id, 0));
        id
    }

    /// A copy of one row of a group as a group of its own.
    fn row_of(&self, group: u32, row: usize) -> Result<Group, Fault> {
        let group = &self.groups[&group];
        let pad = group.pads[row];
        let slots = group.slots.iter().map(|slot| {
            Ok(match slot {
                SlotState::Shared => SlotState::Shared,
                SlotState::Columns(columns) => SlotState::Columns(columns.row(row, pad, group.offset)?),
                SlotState::Moving(state) => SlotState::Moving(ops::slice(state, 0, row, row + 1)?),
            })
        });
        let slots = slots.collect::<Result<Vec<_>, Fault>>()?;
        let alone = Group { pads: vec![0], offset: group.offset - pad, slots, place: None };
        ops::eval(arrays_of(&alone))?;
        Ok(alone)
    }

    /// The group that holds this sequence alone.
    fn separate(&mut self, sequence: u32) -> Result<u32, Fault> {
        let (group, row) = self.places[&sequence];
        if self.groups[&group].pads.len() == 1 {
            return Ok(group);
        }
        let alone = self.row_of(group, row)?;
        let id = self.alone(sequence, alone);
        if !self.places.values().any(|(other, _)| *other == group) {
            self.groups.remove(&group);
        }
        Ok(id)
    }

    /// The group that holds exactly these sequences, in this order.
    fn together(&mut self, sequences: &[u32]) -> Result<u32, Fault> {
        let first = self.places[&sequences[0]].0;
        let is_there = self.groups[&first].pads.len() == sequences.len()
            && sequences.iter().enumerate().all(|(row, id)| self.places[id] == (first, row));
        if is_there {
            return Ok(first);
        }
        if let [only] = sequences {
            return self.separate(*only);
        }
        let rows: Vec<Group> = sequences
            .iter()
            .map(|id| {
                let (group, row) = self.places[id];
                self.row_of(group, row)
            })
            .collect::<Result<_, _>>()?;
        let joined = side_by_side(&rows)?;
        ops::eval(arrays_of(&joined))?;
        let id = self.next_group;
        self.next_group += 1;
        self.groups.insert(id, joined);
        for (row, sequence) in sequences.iter().enumerate() {
            self.places.insert(*sequence, (id, row));
        }
        let used: Vec<u32> = self.places.values().map(|(group, _)| *group).collect();
        self.groups.retain(|id, _| used.contains(id));
        Ok(id)
    }
}

/// Rows of groups of one as one group, padded in front.
fn side_by_side(rows: &[Group]) -> Result<Group, Fault> {
    let width = rows.iter().map(|row| row.offset).max().unwrap_or(0);
    let mut slots = Vec::with_capacity(rows[0].slots.len());
    for index in 0..rows[0].slots.len() {
        let of_rows: Vec<&SlotState> = rows.iter().map(|row| &row.slots[index]).collect();
        slots.push(match of_rows[0] {
            SlotState::Shared => SlotState::Shared,
            SlotState::Columns(_) => {
                let columns = of_rows.iter().filter_map(|slot| match slot {
                    SlotState::Columns(columns) => Some(columns.clone()),
                    _ => None,
                });
                SlotState::Columns(Columns::side_by_side(&columns.collect::<Vec<_>>(), width)?)
            }
            SlotState::Moving(_) => {
                let states = of_rows.iter().filter_map(|slot| match slot {
                    SlotState::Moving(state) => Some(state),
                    _ => None,
                });
                SlotState::Moving(ops::concat(&states.collect::<Vec<_>>(), 0)?)
            }
        });
    }
    let pads = rows.iter().map(|row| width - row.offset).collect();
    Ok(Group { pads, offset: width, slots, place: None })
}

fn arrays_of(group: &Group) -> Vec<&Array> {
    let of_slot = |slot| match slot {
        &SlotState::Shared => Vec::new(),
        SlotState::Columns(columns) => columns.arrays().iter().collect(),
        SlotState::Moving(state) => vec![state],
    };
    group.slots.iter().flat_map(of_slot).collect()
}

/// The tokens of the runs in the order of their parts, and which of them need logits, in the runs' own order.
fn flat(runs: &[Run], order: &[usize]) -> (Vec<u32>, Vec<usize>) {
    let mut firsts = vec![0; runs.len()];
    let mut tokens = Vec::new();
    for index in order {
        firsts[*index] = tokens.len();
        tokens.extend(&runs[*index].tokens);
    }
    let wanted = runs.iter().zip(firsts).flat_map(|(run, first)| {
        let len = run.tokens.len();
        match run.wants {
            Wants::None => 0..0,
            Wants::Last => first + len - 1..first + len,
            Wants::All => first..first + len,
        }
    });
    let wanted = wanted.collect();
    (tokens, wanted)
}

impl Logits {
    /// Logits with the index of the largest of each row.
    pub(crate) fn of(rows: Array) -> Result<Self, Fault> {
        let largest = ops::argmax(&rows)?;
        let top = ops::reduce(sys::mlx_max_axis, &rows, 1, false)?;
        let is_number = ops::binary(sys::mlx_equal, &top, &top)?;
        let largest = ops::choose(&is_number, &largest, &ops::from_ids(&[NOT_A_NUMBER], &[1]))?;
        Ok(Logits { rows, largest })
    }
}
