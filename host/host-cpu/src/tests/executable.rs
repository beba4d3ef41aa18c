//! Sequences: batches, chunks, forks, trims, releases, and what a step refuses.

use host_core::{DType, Numeric};
use host_device::{
    CompileOptions, Device, DeviceError, Executable, KvStorage, LogitsFor, MemoryPlan, PlanRuns, RunError,
    SequenceId, TokenRun,
};
use host_graph::{Graph, Mask, Op, Section, Shape, SlotKind, UnaryOp};

use super::plan::{llama, llama_model};
use super::support::{Folder, Model, TOKENS, as_logits, bits, compile, options, run, run_every_way, step};
use crate::device::CpuDevice;

#[test]
fn batches_chunks_threads_and_forms_do_not_change_a_bit() {
    for is_quantised in [false, true] {
        for numeric in [Numeric::Exact, Numeric::Fast] {
            for (kv, _) in KvStorage::PLAIN {
                let model = llama_model(is_quantised);
                let options = CompileOptions { numeric, kv, ..options() };
                run_every_way(&format!("{numeric}, {kv:?}"), &model, &llama(&model), &options);
            }
        }
    }
}

/// A model with every kind of state: attention, convolution, recurrence and index keys.
fn stateful() -> (Model, Graph) {
    let model = Folder::new(51)
        .dense("e", DType::F32, &[8, 16])
        .dense("conv", DType::F32, &[16, 4])
        .dense("two", DType::F32, &[2, 16])
        .open();
    let graph = model.graph(|b| {
        let ids = b.add(Op::Tokens, &[])?;
        let x = b.add(Op::Embedding { weight: "e".into() }, &[ids])?;
        b.section(Section::Layer(0));
        let conv = b.slot(0, SlotKind::Conv { channels: 16, kernel: 4 })?;
        let c = b.add(Op::Conv1dCausal { slot: conv, weight: "conv".into(), bias: None }, &[x])?;
        let heads = b.add(Op::Reshape { shape: Shape::per_token(&[2, 8]) }, &[c])?;
        let rates = b.add(Op::Linear { weight: "two".into(), bias: None }, &[x])?;
        let rates = b.add(Op::Unary(UnaryOp::Sigmoid), &[rates])?;
        let state = b.slot(0, SlotKind::Recurrent { shape: vec![2, 8, 8] })?;
        let k = b.add(Op::Scale { factor: 0.3 }, &[heads])?;
        let d = b.add(Op::GatedDelta { slot: state }, &[k, k, heads, rates, rates])?;
        let index = b.slot(0, SlotKind::IndexKeys { dim: 8 })?;
        let key = b.add(Op::Slice { axis: 2, start: 0, stop: 8 }, &[x])?;
        let chosen = b.add(Op::SparseSelect { slot: index, k: 4 }, &[heads, key, rates])?;
        let kv = b.slot(0, SlotKind::Kv { heads: 2, dim_k: 8, dim_v: 8, window: None })?;
        let op = Op::Attention { slot: kv, scale: 0.4, mask: Mask::Causal, softcap: None, sinks: None };
        let y = b.add(op, &[d, heads, heads, chosen])?;
        b.section(Section::Head);
        as_logits(b, y)
    });
    (model, graph)
}

#[test]
fn a_fork_goes_on_as_its_source_would_and_apart_from_it() {
    let quantised = llama_model(true);
    let graph = llama(&quantised);
    let (other, other_graph) = stateful();
    for (model, graph) in [(&quantised, &graph), (&other, &other_graph)] {
        let mut executable = compile(model, graph, &options());
        let expected = bits(&run(&mut *executable, &TOKENS, 20));
        let source = executable.new_sequence().unwrap();
        step(&mut *executable, &[(source, &TOKENS[..11])]);
        let fork = executable.fork(source).unwrap();
        assert_eq!(executable.len(fork).unwrap(), 11);
        // Steps of the source must not be seen by the fork.
        step(&mut *executable, &[(source, &[0, 7, 0, 7, 0])]);
        let found = step(&mut *executable, &[(fork, &TOKENS[11..])]).remove(0);
        assert_eq!(bits(&found), expected[11..]);
        executable.release(source);
        assert_eq!(executable.len(fork).unwrap(), 20);
    }
}

#[test]
fn a_trimmed_sequence_goes_on_as_if_the_dropped_tokens_had_never_been() {
    let model = llama_model(false);
    let mut executable = compile(&model, &llama(&model), &options());
    let expected = bits(&run(&mut *executable, &TOKENS, 20));
    let sequence = executable.new_sequence().unwrap();
    step(&mut *executable, &[(sequence, &TOKENS[..9])]);
    step(&mut *executable, &[(sequence, &[0; 20])]);
    executable.trim(sequence, 20).unwrap();
    assert_eq!(executable.len(sequence).unwrap(), 9);
    let found = step(&mut *executable, &[(sequence, &TOKENS[9..])]).remove(0);
    assert_eq!(bits(&found), expected[9..]);
    executable.trim(sequence, 20).unwrap();
    let found = step(&mut *executable, &[(sequence, &TOKENS)]).remove(0);
    assert_eq!(bits(&found), expected);
}

#[test]
fn a_state_that_cannot_go_back_goes_back_to_the_beginning_only() {
    let (model, graph) = stateful();
    let mut executable = compile(&model, &graph, &options());
    let expected = bits(&run(&mut *executable, &TOKENS, 20));
    let sequence = executable.new_sequence().unwrap();
    step(&mut *executable, &[(sequence, &[7, 7, 1, 0, 5])]);
    executable.trim(sequence, 0).unwrap();
    let error = executable.trim(sequence, 2).unwrap_err();
    assert!(matches!(error, DeviceError::Trim { len: 5, n_tokens: 2, .. }), "{error}");
    assert_eq!(executable.len(sequence).unwrap(), 5);
    executable.trim(sequence, 5).unwrap();
    let found = step(&mut *executable, &[(sequence, &TOKENS)]).remove(0);
    assert_eq!(bits(&found), expected);
}

#[test]
fn a_released_place_starts_empty() {
    let (model, graph) = stateful();
    let mut executable = compile(&model, &graph, &CompileOptions { max_sequences: 1, ..options() });
    let first = bits(&run(&mut *executable, &TOKENS, 20));
    assert_eq!(bits(&run(&mut *executable, &TOKENS, 20)), first);
}

#[test]
fn each_slot_has_the_signature_of_its_storage() {
    let (model, graph) = stateful();
    let executable = compile(&model, &graph, &CompileOptions { kv: KvStorage::PlainBf16, ..options() });
    let mut found = executable.signatures();
    found.sort_unstable();
    assert_eq!(found, ["conv:f32", "index-keys:f32", "kv:plain:bf16", "recurrent:f32"]);
}

#[test]
fn logits_come_for_the_tokens_that_were_asked_for() {
    let model = llama_model(false);
    let mut executable = compile(&model, &llama(&model), &options());
    let all = run(&mut *executable, &TOKENS, 20);
    let [a, b, c] = [(); 3].map(|()| executable.new_sequence().unwrap());
    let runs = [
        TokenRun { sequence: a, tokens: &TOKENS[..4], logits: LogitsFor::Last },
        TokenRun { sequence: b, tokens: &TOKENS[..6], logits: LogitsFor::None },
        TokenRun { sequence: c, tokens: &TOKENS[..3], logits: LogitsFor::All },
    ];
    let logits = executable.step(&runs).unwrap();
    assert_eq!((logits.n_rows(), logits.n_vocab()), (4, 8));
    for (row, token) in [3, 0, 1, 2].into_iter().enumerate() {
        let mut found = vec![9.0; 3];
        logits.read(row, &mut found);
        assert_eq!(found, all[token]);
        let best = logits.argmax(row).unwrap();
        assert_eq!(logits.top(row, 2)[0], (best, found[best as usize]));
    }
    let none = TokenRun { sequence: b, tokens: &TOKENS[6..8], logits: LogitsFor::None };
    assert_eq!(executable.step(&[none]).unwrap().n_rows(), 0);
    assert_eq!(executable.step(&[]).unwrap().n_rows(), 0);
}

/// Steps one run that must be refused.
fn refusal(executable: &mut dyn Executable, runs: &[TokenRun<'_>]) -> DeviceError {
    match executable.step(runs) {
        Ok(_) => panic!("taken"),
        Err(error) => error,
    }
}

#[test]
fn a_step_names_the_run_that_it_refuses_and_appends_nothing() {
    let model = llama_model(false);
    let options = CompileOptions { context_tokens: 10, max_sequences: 3, max_step_tokens: 12, ..options() };
    let mut executable = compile(&model, &llama(&model), &options);
    let [good, full, gone] = [(); 3].map(|()| executable.new_sequence().unwrap());
    step(&mut *executable, &[(full, &[1; 8])]);
    executable.release(gone);
    let run = |sequence, tokens| TokenRun { sequence, tokens, logits: LogitsFor::Last };
    let first = run(good, &[1, 2]);
    let cases = [
        (run(full, &[]), RunError::Empty),
        (run(full, &[3, 8]), RunError::Token { token: 8, n_vocab: 8 }),
        (run(full, &[u32::MAX]), RunError::Token { token: u32::MAX, n_vocab: 8 }),
        (run(full, &[1; 3]), RunError::Context { len: 8, new: 3, limit: 10 }),
        (run(gone, &[1]), RunError::UnknownSequence(gone.0)),
        (run(SequenceId(99), &[1]), RunError::UnknownSequence(99)),
        (run(good, &[1]), RunError::Twice(good.0)),
    ];
    for (second, expected) in cases {
        match refusal(&mut *executable, &[first, second]) {
            DeviceError::Run { index: 1, kind } => assert_eq!(kind, expected),
            other => panic!("{other}"),
        }
        assert_eq!((executable.len(good).unwrap(), executable.len(full).unwrap()), (0, 8), "{expected}");
    }
    let error = refusal(&mut *executable, &[run(good, &[1; 13])]);
    assert!(matches!(error, DeviceError::StepTooLarge { found: 13, limit: 12 }), "{error}");
    // The full context and the full step are taken.
    executable.step(&[run(good, &[1; 10]), run(full, &[1, 2])]).unwrap();
    assert_eq!((executable.len(good).unwrap(), executable.len(full).unwrap()), (10, 10));
}

#[test]
fn sequences_are_counted_and_unknown_ones_refused() {
    let model = llama_model(false);
    let mut executable = compile(&model, &llama(&model), &CompileOptions { max_sequences: 2, ..options() });
    let [a, b] = [(); 2].map(|()| executable.new_sequence().unwrap());
    assert!(matches!(executable.new_sequence(), Err(DeviceError::TooManySequences { limit: 2 })));
    assert!(matches!(executable.fork(a), Err(DeviceError::TooManySequences { limit: 2 })));
    executable.release(b);
    executable.release(b);
    executable.release(SequenceId(77));
    assert!(matches!(executable.fork(b), Err(DeviceError::UnknownSequence(_))));
    assert!(matches!(executable.trim(b, 0), Err(DeviceError::UnknownSequence(_))));
    assert!(matches!(executable.len(b), Err(DeviceError::UnknownSequence(_))));
    assert!(matches!(executable.trim(a, 1), Err(DeviceError::Trim { len: 0, n_tokens: 1, .. })));
    let fork = executable.fork(a).unwrap();
    assert_eq!(executable.len(fork).unwrap(), 0);
}

#[test]
fn the_memory_plan_counts_weights_state_and_activations() {
    let model = llama_model(false);
    let graph = llama(&model);
    let options =
        CompileOptions { kv: KvStorage::PlainF16, context_tokens: 40, max_sequences: 3, ..options() };
    let plan = CpuDevice::new().check(&graph, model.checkpoint.catalogue(), &options).unwrap();
    let panels = |rows: usize| rows.div_ceil(16) * 16;
    let rows_of_32: usize = [32, 16, 16, 32, 48, 48].map(panels).iter().sum();
    let matrices = 2 * (rows_of_32 * 32 + 32 * 64) + 4 * panels(8) * 32;
    // Two norm vectors, each in whole cache lines.
    assert_eq!(plan.weights_bytes, (matrices + 2 * 32 * 4) as u64);
    // Keys and values of one head of 16, for 40 positions in whole blocks of 16.
    assert_eq!(plan.state_bytes, 3 * 2 * 48 * 16 * 2);
    let executable = compile(&model, &graph, &options);
    assert_eq!(executable.memory(), plan);
    // At least the scores of a thread and the logits, at most what every buffer apart would take.
    let least = 8 * 48 * 4 + 3 * 8 * 4;
    assert!((least..400_000).contains(&plan.activation_bytes), "{plan:?}");
    let limit = plan.total_bytes() - 1;
    let error = CpuDevice::new()
        .check(
            &graph,
            model.checkpoint.catalogue(),
            &CompileOptions { memory_bytes: Some(limit), ..options.clone() },
        )
        .unwrap_err();
    match error {
        DeviceError::Memory { needed, limit: found, .. } => {
            assert_eq!((needed, found), (plan.total_bytes(), limit));
        }
        other => panic!("{other}"),
    }
    let enough = CompileOptions { memory_bytes: Some(limit + 1), ..options };
    let MemoryPlan { .. } = CpuDevice::new().check(&graph, model.checkpoint.catalogue(), &enough).unwrap();
}

#[test]
fn progress_runs_from_nothing_to_all_matrices() {
    let model = llama_model(true);
    let mut seen = Vec::new();
    CpuDevice::new()
        .compile(&llama(&model), &model.checkpoint, &options(), &mut |done, all| seen.push((done, all)))
        .unwrap();
    assert_eq!(seen.len(), 9);
    assert_eq!(seen[0].0, 0);
    assert!(seen.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 == two[1].1));
    assert_eq!(seen[8].0, seen[8].1);
}

/// The logits of tokens in a sequence that is stored so, whole or in chunks.
fn stored(executable: &mut dyn Executable, kv: KvStorage, chunk: usize) -> Vec<Vec<f32>> {
    let sequence = executable.new_sequence_stored(kv).unwrap();
    let rows =
        TOKENS.chunks(chunk).flat_map(|tokens| step(executable, &[(sequence, tokens)]).remove(0)).collect();
    executable.release(sequence);
    rows
}

/// The guard holds for sequences as the plan stores them, and fails for any other, which then gets what a plan made
/// for its storage gives: the same bits.
#[test]
fn a_sequence_that_is_stored_otherwise_runs_the_general_form() {
    for is_quantised in [false, true] {
        for numeric in [Numeric::Exact, Numeric::Fast] {
            let model = llama_model(is_quantised);
            let graph = llama(&model);
            let of = |kv| CompileOptions { numeric, kv, ..options() };
            let mut planned = compile(&model, &graph, &of(KvStorage::PlainF32));
            for (kv, signature) in KvStorage::PLAIN {
                let expected = bits(&run(&mut *compile(&model, &graph, &of(kv)), &TOKENS, TOKENS.len()));
                let before = planned.plan_runs();
                assert_eq!(bits(&stored(&mut *planned, kv, TOKENS.len())), expected, "{numeric} {kv:?}");
                assert_eq!(bits(&stored(&mut *planned, kv, 7)), expected, "{numeric} {kv:?}: chunks");
                let PlanRuns { specialised, general } = planned.plan_runs();
                let n_steps = 1 + TOKENS.len().div_ceil(7) as u64;
                let added = (specialised - before.specialised, general - before.general);
                let is_planned = kv == KvStorage::PlainF32;
                assert_eq!(added, if is_planned { (n_steps, 0) } else { (0, n_steps) }, "{kv:?}");
                let sequence = planned.new_sequence_stored(kv).unwrap();
                let signatures = planned.sequence_signatures(sequence).unwrap();
                assert!(signatures.iter().all(|slot| slot == signature), "{signatures:?}");
                planned.release(sequence);
            }
        }
    }
}

#[test]
fn sequences_of_every_storage_share_a_step() {
    let model = llama_model(true);
    let graph = llama(&model);
    let mut planned = compile(&model, &graph, &options());
    assert_eq!(options().kv, KvStorage::PlainF32);
    let rows = KvStorage::PLAIN.map(|(kv, _)| bits(&stored(&mut *planned, kv, TOKENS.len())));
    let before = planned.plan_runs();
    let sequences = KvStorage::PLAIN.map(|(kv, _)| planned.new_sequence_stored(kv).unwrap());
    let mut found = [(); 3].map(|()| Vec::new());
    for tokens in TOKENS.chunks(6) {
        let runs = sequences.map(|sequence| (sequence, tokens));
        for (found, rows) in found.iter_mut().zip(step(&mut *planned, &runs)) {
            found.extend(rows);
        }
    }
    assert_eq!(found.map(|rows| bits(&rows)), rows);
    assert_eq!(planned.plan_runs().specialised, before.specialised);
    // A fork is stored as its source, and a step without the others is the specialised form's again.
    let [f32_, f16, bf16] = sequences;
    planned.release(bf16);
    let fork = planned.fork(f16).unwrap();
    assert_eq!(planned.sequence_signatures(fork).unwrap(), planned.sequence_signatures(f16).unwrap());
    let one = step(&mut *planned, &[(f16, &[3]), (fork, &[3])]);
    assert_eq!(bits(&one[0]), bits(&one[1]));
    let general = planned.plan_runs().general;
    step(&mut *planned, &[(f32_, &[3])]);
    assert_eq!(planned.plan_runs(), PlanRuns { specialised: before.specialised + 1, general });
}

#[test]
fn a_storage_that_needs_more_room_than_planned_is_refused() {
    let model = llama_model(false);
    let options = CompileOptions { kv: KvStorage::PlainF16, numeric: Numeric::Fast, ..options() };
    let mut planned = compile(&model, &llama(&model), &options);
    let error = planned.new_sequence_stored(KvStorage::PlainF32).unwrap_err();
    let expected = "device `cpu` does not have a sequence stored as kv:plain:f32 in a plan for kv:plain:f16";
    assert_eq!(error.to_string(), expected);
    planned.new_sequence_stored(KvStorage::PlainBf16).unwrap();
    assert!(matches!(planned.sequence_signatures(SequenceId(9)), Err(DeviceError::UnknownSequence(9))));
}

/// What keeps no keys is stored alike whatever is asked for keys.
#[test]
fn a_graph_without_keys_has_one_form() {
    let model = Folder::new(52).dense("e", DType::F32, &[8, 16]).dense("conv", DType::F32, &[16, 4]).open();
    let graph = model.graph(|b| {
        let ids = b.add(Op::Tokens, &[])?;
        let x = b.add(Op::Embedding { weight: "e".into() }, &[ids])?;
        b.section(Section::Layer(0));
        let slot = b.slot(0, SlotKind::Conv { channels: 16, kernel: 4 })?;
        let y = b.add(Op::Conv1dCausal { slot, weight: "conv".into(), bias: None }, &[x])?;
        b.section(Section::Head);
        as_logits(b, y)
    });
    let mut executable = compile(&model, &graph, &options());
    stored(&mut *executable, KvStorage::PlainBf16, 5);
    assert_eq!(executable.plan_runs().general, 0);
}
