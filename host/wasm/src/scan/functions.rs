//! What a function may cost a compiler. Cranelift's time and memory grow with more than the size of its input: 10 KiB
//! of nested loops over many locals took half a minute, and 3 KiB of blocks with many parameters a gigabyte. The
//! compile child has limits of its own; these bounds refuse the known bombs without a process, with a message that
//! names the function.

use wasmparser::{BinaryReaderError, FunctionBody};

use super::flow::Flow;
use super::signatures::Signatures;

/// Largest function body. CPython's interpreter loop, the largest known, has some 200 KiB.
const MAX_BODY_BYTES: usize = 512 << 10;
/// Most locals of one function. Interpreters written in C reach several hundred.
const MAX_LOCALS: u32 = 5_000;
/// Deepest nesting of blocks. Go's compiler opens one for each point where a function can resume.
const MAX_BLOCK_DEPTH: u32 = 5_000;
/// Locals times the depth of nested loops, for one function: 140 locals under 140 loops compile in under a second, 400
/// under 400 take half a minute.
const MAX_LOOPED: u64 = 20_000;
/// The same, summed over all functions, for each MiB or part of one: 340 functions of a second each would fit in one
/// MiB.
const MAX_LOOPED_PER_MIB: u64 = 200_000;
/// Values that one function passes by blocks, branches and calls with more than one. Each costs Cranelift 2 KiB of
/// memory as a parameter of a block (100,000 take 203 MiB and half a second, 500,000 more than its 1 GiB), and 15 to 30
/// µs as a result of a call. Rust, C and Go write code that has none.
const MAX_VALUES: u64 = 100_000;
/// The same, summed over all functions, for each MiB or part of one.
const MAX_VALUES_PER_MIB: u64 = 300_000;
/// Locals that the branches of one function carry, as `flow.rs` counts them. A `br_table` of 60,000 entries over 100
/// locals, in 59 KiB, carries 6,000,000: it took 10 s and 646 MiB. The repository's plugins have 97,000 at most, and
/// k8s-openapi's PodSpec, of which Cranelift needs 400 MiB, 713,000.
const MAX_CARRIED: u64 = 2_000_000;
/// The same, summed over all functions, for each MiB or part of one. A Deployment of k8s-openapi has 3,400,000.
const MAX_CARRIED_PER_MIB: u64 = 20_000_000;
const MIB: usize = 1 << 20;

pub(super) enum Problem {
    Unreadable(BinaryReaderError),
    TooCostly(String),
}

impl From<BinaryReaderError> for Problem {
    fn from(error: BinaryReaderError) -> Self {
        Self::Unreadable(error)
    }
}

/// What a component's functions may cost together.
pub(super) struct CostBudget {
    /// Locals times the depth of nested loops.
    looped: u64,
    values: u64,
    locals: u64,
    /// The size of the component, which all three may grow with.
    mib: u64,
}

impl CostBudget {
    /// The budget of a component of this size.
    pub(super) fn for_size(bytes: usize) -> Self {
        Self { looped: 0, values: 0, locals: 0, mib: bytes.div_ceil(MIB).max(1) as u64 }
    }

    /// Adds the cost of a function; `number` counts over the whole component.
    pub(super) fn add(
        &mut self,
        number: u32,
        body: &FunctionBody<'_>,
        signatures: &mut Signatures,
    ) -> Result<(), Problem> {
        let too_costly =
            |what: String| Err(Problem::TooCostly(format!("function {number} of the component {what}; split it up")));
        let bytes = body.range().len();
        if bytes > MAX_BODY_BYTES {
            return too_costly(format!("has {bytes} bytes of code, more than {MAX_BODY_BYTES}"));
        }
        let own = signatures.next_body();
        let mut locals = own.parameters;
        for group in body.get_locals_reader()? {
            locals = locals.saturating_add(group?.0);
        }
        if locals > MAX_LOCALS {
            return too_costly(format!("has {locals} locals, more than {MAX_LOCALS}"));
        }
        let flow = Flow::of(body, own, locals, signatures, MAX_CARRIED)?;
        if flow.depth > MAX_BLOCK_DEPTH {
            return too_costly(format!("nests {} blocks, more than {MAX_BLOCK_DEPTH}", flow.depth));
        }
        if flow.values > MAX_VALUES {
            return too_costly(format!("passes more than {MAX_VALUES} values by blocks, branches and calls"));
        }
        if flow.locals > MAX_CARRIED {
            return too_costly(format!("has branches that carry more than {MAX_CARRIED} locals together"));
        }
        let looped = u64::from(locals) * u64::from(flow.loops);
        if looped > MAX_LOOPED {
            return too_costly(format!(
                "nests {} loops over {locals} locals, which takes compilers minutes",
                flow.loops
            ));
        }
        self.spend(number, looped, &flow)
    }

    fn spend(&mut self, number: u32, looped: u64, flow: &Flow) -> Result<(), Problem> {
        let sums = [
            (&mut self.looped, looped, MAX_LOOPED_PER_MIB, "nest too many loops over too many locals"),
            (&mut self.values, flow.values, MAX_VALUES_PER_MIB, "pass too many values by blocks, branches and calls"),
            (&mut self.locals, flow.locals, MAX_CARRIED_PER_MIB, "have branches that carry too many locals"),
        ];
        for (spent, cost, per_mib, what) in sums {
            *spent += cost;
            if *spent > per_mib.saturating_mul(self.mib) {
                return Err(Problem::TooCostly(format!(
                    "the component's functions together {what} for its size (reached at function {number}); that takes \
                     compilers minutes"
                )));
            }
        }
        Ok(())
    }
}
