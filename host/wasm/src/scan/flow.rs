//! How many values a function's control flow carries. A compiler keeps each of them: as a parameter of a block, and as
//! an argument of each branch to it. WebAssembly names them in fewer bytes: `loop` with a type of 500 parameters has
//! two, and each entry of a `br_table`, in one byte, carries all locals that its target's other branches may have
//! changed.
//!
//! One pass over the operators, with a stack of the open blocks. Code that cannot be reached is counted too: toolchains
//! write little of it.

use wasmparser::{BinaryReaderError, BrTable, FunctionBody, Operator};

use super::signatures::{Signature, Signatures};

/// What a parameter of a block costs, in arguments of branches. 300 nested blocks over 300 locals, with 2,000 branches
/// to them, took 11.8 s; 100 over 100, with 20,000, 1.6 s.
const PARAMETER: u64 = 20;

/// What one function's control flow costs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    /// Deepest nesting of blocks.
    pub(super) depth: u32,
    /// Deepest nesting of loops.
    pub(super) loops: u32,
    /// Values beyond the first that blocks, branches and calls pass on the stack. The first is paid by the operator's
    /// own bytes.
    pub(super) values: u64,
    /// Locals that branches may carry: for each block the branches to its end, or to its head if it is a loop, and
    /// [`PARAMETER`] for the block itself, times the locals that are set within.
    pub(super) locals: u64,
}

/// A block that has not ended.
struct Block {
    is_loop: bool,
    of: Signature,
    /// Position of its first operator.
    begin: usize,
    /// Branches to it.
    branches: u64,
    /// Locals that were set since it began, each once; those of blocks within it are added when these end.
    set: u64,
    /// Those of them that were set in the enclosing block too, so that they do not count for it again.
    known_outside: u64,
}

impl Block {
    /// Values of a branch to it.
    fn carries(&self) -> u64 {
        beyond_the_first(if self.is_loop { self.of.parameters } else { self.of.results })
    }
}

fn beyond_the_first(values: u32) -> u64 {
    u64::from(values.saturating_sub(1))
}

/// The state of one pass.
struct Pass<'a> {
    signatures: &'a Signatures,
    flow: Flow,
    open: Vec<Block>,
    loops: u32,
    /// The position at which each local was set last; 0 if never.
    last_set: Vec<usize>,
}

impl Flow {
    /// Reads a function of this many locals, parameters included; of one that carries more than `most` of either only a
    /// part.
    pub(super) fn of(
        body: &FunctionBody<'_>,
        own: Signature,
        locals: u32,
        signatures: &Signatures,
        most: u64,
    ) -> Result<Self, BinaryReaderError> {
        let function = Block { is_loop: false, of: own, begin: 0, branches: 0, set: 0, known_outside: 0 };
        let last_set = vec![0; locals as usize];
        let mut pass = Pass { signatures, flow: Self::default(), open: vec![function], loops: 0, last_set };
        for (before, operator) in body.get_operators_reader()?.into_iter().enumerate() {
            // The first has position 1, because 0 is "never".
            pass.step(before + 1, &operator?)?;
            if pass.flow.values > most || pass.flow.locals > most {
                break;
            }
        }
        Ok(pass.flow)
    }
}

impl Pass<'_> {
    fn step(&mut self, at: usize, operator: &Operator<'_>) -> Result<(), BinaryReaderError> {
        match operator {
            Operator::Loop { blockty } => self.open(at, self.signatures.of_block(*blockty), true),
            Operator::Block { blockty } | Operator::If { blockty } => {
                self.open(at, self.signatures.of_block(*blockty), false);
            }
            Operator::TryTable { try_table } => self.open(at, self.signatures.of_block(try_table.ty), false),
            Operator::Else => {
                let parameters = self.open.last().map_or(0, |block| block.of.parameters);
                self.flow.values += beyond_the_first(parameters);
                self.branch(0, 1);
            }
            Operator::End => self.end(),
            Operator::Br { relative_depth } | Operator::BrIf { relative_depth } => {
                self.flow.values += self.carried(*relative_depth);
                self.branch(*relative_depth, 1);
            }
            Operator::BrTable { targets } => self.branch_by_table(targets)?,
            Operator::Call { function_index } => self.call(self.signatures.of_function(*function_index)),
            Operator::CallIndirect { type_index, .. } => self.call(self.signatures.of_type(*type_index)),
            Operator::LocalSet { local_index } | Operator::LocalTee { local_index } => self.set(at, *local_index),
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, at: usize, of: Signature, is_loop: bool) {
        self.flow.values += beyond_the_first(of.parameters) + beyond_the_first(of.results);
        self.open.push(Block { is_loop, of, begin: at, branches: 0, set: 0, known_outside: 0 });
        self.loops += u32::from(is_loop);
        self.flow.loops = self.flow.loops.max(self.loops);
        // Without the function's own block.
        self.flow.depth = self.flow.depth.max(u32::try_from(self.open.len() - 1).unwrap_or(u32::MAX));
    }

    /// A branch costs what its block has at the end: a local that is set after the branch reaches the end on another.
    fn end(&mut self) {
        let Some(block) = self.open.pop() else { return };
        self.loops -= u32::from(block.is_loop);
        if block.branches > 0 {
            self.flow.locals += (block.branches + PARAMETER) * block.set;
        }
        if let Some(outside) = self.open.last_mut() {
            outside.set += block.set - block.known_outside;
        }
    }

    fn call(&mut self, of: Signature) {
        // Its parameters were counted when they were pushed.
        self.flow.values += beyond_the_first(of.results);
    }

    fn carried(&self, depth: u32) -> u64 {
        self.target(depth).map_or(0, |at| self.open[at].carries())
    }

    fn target(&self, depth: u32) -> Option<usize> {
        self.open.len().checked_sub(1)?.checked_sub(depth as usize)
    }

    fn branch(&mut self, depth: u32, count: u64) {
        if let Some(at) = self.target(depth) {
            self.open[at].branches += count;
        }
    }

    /// The values are carried once for each target, however many entries name it, and the locals for each entry.
    fn branch_by_table(&mut self, table: &BrTable<'_>) -> Result<(), BinaryReaderError> {
        let mut targets = table.targets().collect::<Result<Vec<u32>, _>>()?;
        targets.push(table.default());
        for depth in &targets {
            self.branch(*depth, 1);
        }
        targets.sort_unstable();
        targets.dedup();
        let carried: u64 = targets.into_iter().map(|depth| self.carried(depth)).sum();
        self.flow.values += carried;
        Ok(())
    }

    /// Counts the local for each open block that began after it was set last: for the innermost here, for those around
    /// it when that ends.
    fn set(&mut self, at: usize, local: u32) {
        let Some(last) = self.last_set.get_mut(local as usize) else { return };
        let since = std::mem::replace(last, at);
        let outermost = if since == 0 { 0 } else { self.open.partition_point(|block| block.begin <= since) };
        if let Some(block) = self.open.get_mut(outermost) {
            block.known_outside += 1;
            if let Some(innermost) = self.open.last_mut() {
                innermost.set += 1;
            }
        }
    }
}
