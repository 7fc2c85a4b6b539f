//! What every PE publishes to every member at the start of a collective.

/// The head of a slot; the PE's splits (i64) follow it. 128 bytes, the same layout in `kernels/include/symm/exchange.cuh`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Header {
    /// Epoch of the operation: the context's ticket plus one.
    pub epoch: u64,
    /// [`Form`](crate::backend::Form) code.
    pub form: u64,
    /// [`DType`](crate::DType) code.
    pub dtype: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Experts a rank (1 where the form has none).
    pub ne: u64,
    /// Alignment of each expert's start, in rows (1 where the form has none).
    pub major_align: u64,
    /// 0 if this PE's arguments are valid, else a [`status::fault`](crate::status::fault) code.
    pub invalid: u64,
    /// First number of the fault.
    pub invalid_a: u64,
    /// Second number of the fault.
    pub invalid_b: u64,
    /// Id of the output's allocation, equal on all members.
    pub out_id: u64,
    /// Byte offset of the output in that PE's data area.
    pub out_offset: u64,
    /// Rows of the output on that PE.
    pub out_rows: u64,
    /// Rows of the input on that PE.
    pub in_rows: u64,
    /// Splits that follow.
    pub n_splits: u64,
    /// Rank whose rows are broadcast (0 where the form has none).
    pub root: u64,
    /// Leading rows of a reduction, or a digest: of the shape for the forms that take, of the plan for exchanges of one (else 0).
    pub lead: u64,
}

const _: () = assert!(size_of::<Header>() == 128);
