//! Each bound has its own code, holds against a script that catches errors, and leaves nothing behind.

use std::time::Instant;

use super::*;

fn spent(budget: PipelineBudget, text: &str) -> (Report, Seen) {
    let (outcome, seen) = Case { budget, ..Case::default() }.run(text);
    (outcome.expect_err(text).report(), seen)
}

#[test]
fn each_bound_ends_the_run_with_its_code() {
    let roomy = roomy();
    let cases = [
        (PipelineBudget { burst_ms: 30, ..roomy }, "while true do end", "pipeline.burst-budget"),
        (
            PipelineBudget { burst_ms: 30, ..roomy },
            "while true do pcall(function() while true do end end) end",
            "pipeline.burst-budget",
        ),
        (
            PipelineBudget { burst_ms: 30, ..roomy },
            "local co = coroutine.wrap(function() while true do end end) while true do pcall(co) end",
            "pipeline.burst-budget",
        ),
        (
            PipelineBudget { lua_ms: 40, ..roomy },
            "while true do for i = 1, 1e6 do end model():generate('a') end",
            "pipeline.lua-time-budget",
        ),
        (PipelineBudget { wall_ms: 60, ..roomy }, "model():generate('forever')", "pipeline.wall-budget"),
        (
            PipelineBudget { lua_memory_bytes: 2 << 20, ..roomy },
            "local t = {} while true do t[#t + 1] = string.rep('x', 1000) .. #t end",
            "pipeline.memory-budget",
        ),
        (
            PipelineBudget { lua_memory_bytes: 2 << 20, ..roomy },
            "pcall(string.rep, 'x', 1e8) return 'went on'",
            "pipeline.memory-budget",
        ),
        (
            PipelineBudget { host_calls: 5, ..roomy },
            "for i = 1, 9 do pcall(model) end",
            "pipeline.call-budget",
        ),
        (
            PipelineBudget { tasks: 3, ..roomy },
            "for i = 1, 9 do pcall(spawn, function() end) end",
            "pipeline.task-budget",
        ),
        (
            PipelineBudget { tasks: 3, ..roomy },
            "local function again() spawn(again) end again()",
            "pipeline.task-budget",
        ),
        (
            PipelineBudget { output_bytes: 8, ..roomy },
            "while true do emit('abc') end",
            "pipeline.output-budget",
        ),
        (PipelineBudget { output_bytes: 8, ..roomy }, "return 'more than eight'", "pipeline.output-budget"),
        (PipelineBudget { log_bytes: 8, ..roomy }, "while true do print('abc') end", "pipeline.log-budget"),
    ];
    for (budget, body, code) in cases {
        let (found, seen) = spent(budget, &format!("function main()\n{body}\nend"));
        assert_eq!(found.code, code, "{body}: {found}");
        assert!(found.expected.is_some() && found.mend.is_some(), "{found}");
        assert!(seen.emitted.len() <= 8, "{body}");
    }
}

#[test]
fn what_a_budget_ends_is_released() {
    let budget = PipelineBudget { wall_ms: 60, ..roomy() };
    let script = "function main()
        local s = model():session()
        s:append({ role = 'user', content = 'forever' })
        spawn(function() s:fork():generate() end)
        s:generate()
    end";
    let (found, seen) = spent(budget, script);
    assert_eq!(found.code, "pipeline.wall-budget");
    assert_eq!(seen.cancelled.len(), 2, "{seen:?}");
    assert!(seen.open_sessions.is_empty(), "{seen:?}");
}

#[test]
fn cancelling_ends_generations_and_sessions_at_once() {
    let script = "function main()
        local s = model():session()
        s:append({ role = 'user', content = 'forever' })
        pcall(function() s:generate() end)
        emit('went on')
    end";
    let begun = Instant::now();
    let (outcome, seen) = Case { cancel_after_step: Some(3), ..Case::default() }.run(script);
    assert!(matches!(outcome, Err(PipelineError::Cancelled)), "{outcome:?}");
    assert_eq!((seen.cancelled.len(), seen.emitted.as_str()), (1, ""));
    assert!(seen.open_sessions.is_empty(), "{seen:?}");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn waiting_is_no_time_in_lua() {
    let budget = PipelineBudget { burst_ms: 100, lua_ms: 150, ..roomy() };
    let words = "slow ".repeat(20);
    let script = format!("function main() for i = 1, 3 do model():generate('{words}') end return 'done' end");
    let (outcome, _) = Case { budget, ..Case::default() }.run(&script);
    assert_eq!(outcome.expect("it only waits").value, "done");
}

#[test]
fn what_the_host_does_in_a_call_is_no_time_in_lua() {
    let budget = PipelineBudget { burst_ms: 100, lua_ms: 140, ..roomy() };
    let calls = "for i = 1, 3 do model():count_tokens('slow') end";
    let (outcome, _) =
        Case { budget, ..Case::default() }.run(&format!("function main() {calls} return 'done' end"));
    let outcome = outcome.expect("the host takes its time");
    assert_eq!(outcome.value, "done");
    assert!(outcome.lua_ms < 140, "{outcome:?}");
    // The script's own time counts on after a call, and nothing moves the end of the run.
    let (found, _) = spent(budget, &format!("function main() {calls} while true do end end"));
    assert_eq!(found.code, "pipeline.burst-budget");
    let budget = PipelineBudget { wall_ms: 200, ..roomy() };
    let (found, _) = spent(budget, "function main() while true do model():count_tokens('slow') end end");
    assert_eq!(found.code, "pipeline.wall-budget");
}

#[test]
fn a_bound_beyond_what_the_clock_counts_is_no_bound() {
    let budget = PipelineBudget { burst_ms: u64::MAX, lua_ms: u64::MAX, wall_ms: u64::MAX, ..roomy() };
    let (outcome, _) = Case { budget, ..Case::default() }.run("function main() return 'done' end");
    assert_eq!(outcome.expect("nothing is spent").value, "done");
}
