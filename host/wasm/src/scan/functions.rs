//! What a function may cost a compiler. Cranelift's time grows with more than the size of its input: 10 KiB of nested
//! loops over many locals took half a minute. The compile child has limits of its own; these bounds refuse the known
//! bombs without a process, with a message that names the function.

use wasmparser::{BinaryReaderError, FunctionBody, Operator};

/// Largest function body. CPython's interpreter loop, the largest known, has some 200 KiB.
const MAX_BODY_BYTES: usize = 512 << 10;
/// Most locals of one function. Interpreters written in C reach several hundred.
const MAX_LOCALS: u32 = 5_000;
/// Deepest nesting of blocks. Go's compiler opens one for each point where a function can resume.
const MAX_BLOCK_DEPTH: u32 = 5_000;
/// Locals times the depth of nested loops, for one function: 140 locals under 140 loops compile in under a second, 400
/// under 400 take half a minute.
const MAX_COST: u64 = 20_000;
/// The same, summed over all functions, for each MiB or part of one: 340 functions of a second each would fit in one
/// MiB.
const MAX_COST_PER_MIB: u64 = 200_000;
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
    spent: u64,
    limit: u64,
}

impl CostBudget {
    /// The budget of a component of this size.
    pub(super) fn for_size(bytes: usize) -> Self {
        Self { spent: 0, limit: MAX_COST_PER_MIB.saturating_mul(bytes.div_ceil(MIB).max(1) as u64) }
    }

    /// Adds the cost of a function; `number` counts over the whole component.
    pub(super) fn add(&mut self, number: u32, body: &FunctionBody<'_>) -> Result<(), Problem> {
        let too_costly =
            |what: String| Err(Problem::TooCostly(format!("function {number} of the component {what}; split it up")));
        let bytes = body.range().len();
        if bytes > MAX_BODY_BYTES {
            return too_costly(format!("has {bytes} bytes of code, more than {MAX_BODY_BYTES}"));
        }
        let mut locals = 0u32;
        for group in body.get_locals_reader()? {
            locals = locals.saturating_add(group?.0);
        }
        if locals > MAX_LOCALS {
            return too_costly(format!("has {locals} locals, more than {MAX_LOCALS}"));
        }
        let depth = Depth::of(body)?;
        if depth.blocks > MAX_BLOCK_DEPTH {
            return too_costly(format!("nests {} blocks, more than {MAX_BLOCK_DEPTH}", depth.blocks));
        }
        let cost = u64::from(locals) * u64::from(depth.loops);
        if cost > MAX_COST {
            return too_costly(format!(
                "nests {} loops over {locals} locals, which takes compilers minutes",
                depth.loops
            ));
        }
        self.spent += cost;
        if self.spent > self.limit {
            return Err(Problem::TooCostly(format!(
                "the component's functions together nest too many loops over too many locals for its size (reached at \
                 function {number}); that takes compilers minutes"
            )));
        }
        Ok(())
    }
}

/// How deep a function's control flow nests.
struct Depth {
    blocks: u32,
    loops: u32,
}

impl Depth {
    fn of(body: &FunctionBody<'_>) -> Result<Self, BinaryReaderError> {
        let mut deepest = Self { blocks: 0, loops: 0 };
        // One entry for each open block, true for loops; the function's own `end` finds it empty.
        let mut open: Vec<bool> = Vec::new();
        let mut loops = 0;
        for operator in body.get_operators_reader()? {
            match operator? {
                Operator::Loop { .. } => {
                    open.push(true);
                    loops += 1;
                    deepest.loops = deepest.loops.max(loops);
                }
                Operator::Block { .. } | Operator::If { .. } | Operator::TryTable { .. } => open.push(false),
                Operator::End => loops -= u32::from(open.pop() == Some(true)),
                _ => {}
            }
            deepest.blocks = deepest.blocks.max(u32::try_from(open.len()).unwrap_or(u32::MAX));
        }
        Ok(deepest)
    }
}
