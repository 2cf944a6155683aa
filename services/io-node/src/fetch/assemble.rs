//! Assemble: puts rows, as they arrive, into the columns of a reply, or scores them.
//!
//! If columns are requested, a row's bytes are copied once, from the ring's buffer, the RAM tier or the image that was
//! read from the table to their place in an Arrow buffer. There are three exceptions. A row with a column of variable
//! width is copied a second time, because its place depends on the rows before it, unless the column is alone in its
//! pack, or all rows before it have been decoded when it arrives, as in a batch whose rows are all in the RAM tier. So
//! is a row that spans several sectors of the RAM tier, and a row in [`Form::Row`] that is longer than a read.
//!
//! If the rows are to be scored, they are scored in place, and only a row that spans several sectors of the RAM tier is
//! copied. But all rows of the batch are copied before they are scored if one of them is longer than a read, or comes
//! from a chunk or image that is not in [`Form::Plain`]. That is a chunk or image in which a vector has a null element,
//! or in which a vector is null and vectors have fewer than 64 bytes.
//!
//! If the caller asks which rows pass a predicate, the predicate is evaluated over the columns.

use address::SECTOR_BYTES;
use arrow_array::make_array;
use arrow_data::ArrayData;
use pack::{Assembler, Extent, ExtentIndex, Form, PackError, SectorSpan};
use traffic::NoRoom;
use wire::{Fault, Reason};

use super::Core;
use super::requests::{Gather, Request, RowSource};
use super::rerank::{Scorer, score_columns};
use crate::error::{NodeError, fault_of};
use crate::shard::{HeldBytes, RequestNo};

/// Creates the columns or the scorer for the rows of a located request. Reserves memory for the rows, unless they are
/// scored without being copied.
///
/// # Errors
/// The rows do not fit a reply, or the node has no memory for them.
pub fn prepare(core: &Core, no: RequestNo) -> Result<(), Fault> {
    let mut requests = core.requests.borrow_mut();
    // If this request was prepared before, its earlier reply no longer counts: some of its rows come from another
    // source now.
    requests.set_reply_bytes(no, 0);
    let Some(flow) = requests.get_mut(no).map(|request| request.flow) else { return Ok(()) };
    let of_flow = requests.reply_bytes_of(flow);
    let Some(request) = requests.get_mut(no) else { return Ok(()) };
    let directory = core.directory.borrow();
    let index = |part: usize, source: RowSource| -> Option<(&ExtentIndex, u32)> {
        match source {
            RowSource::Extent(extent, row) => Some((&directory.extent(extent)?.index, row)),
            RowSource::Table(row) => Some((&request.images[part].as_ref()?.index, row)),
        }
    };
    let rows = |part: usize| request.sources[part].iter().filter_map(move |&s| index(part, s));
    let all_rows = || (0..request.sources.len()).flat_map(&rows);
    // Random rows are in no cache of the CPU.
    all_rows().for_each(|(index, row)| index.prefetch_row(row));
    let bytes: u64 = all_rows().filter_map(|(index, row)| index.len_of(row)).map(u64::from).sum();
    let longest = core.node.config.read_max.as_u64() as usize;
    let in_one_read = |sectors: SectorSpan| sectors.count as usize * SECTOR_BYTES <= longest;
    let in_place = |(index, row): (&ExtentIndex, u32)| {
        index.form() == Form::Plain && index.sectors_of(row).is_some_and(in_one_read)
    };
    let scored = request.rerank.as_ref().filter(|_| rows(0).all(in_place));
    let held = match scored {
        Some(_) => None,
        None if bytes > REPLY_BYTES_MAX => {
            let (rows, bytes_max) = (request.rows(), REPLY_BYTES_MAX);
            return Err(fault_of(&NodeError::BatchTooLarge { rows, bytes_max }));
        }
        None => Some(hold(core, bytes, request.held_bytes(), of_flow)?),
    };
    let held_bytes = held.as_ref().map_or(0, HeldBytes::bytes);
    let gather = match scored {
        Some(by) => Gather::Score(Scorer::new(by, request.rows())),
        None => {
            let parts = request.projection.parts.iter().enumerate();
            let assembler = |(at, part): (usize, &crate::table::PackProjection)| {
                let layout = &request.projection.pack(part).layout;
                let mut used = |len| core.buffers.take(len);
                Assembler::in_memory(layout, &part.columns, rows(at), &mut used)
            };
            let assemblers = parts.map(assembler).collect::<Result<_, PackError>>();
            Gather::Rows(assemblers.map_err(|e| fault_of(&NodeError::from(e)))?)
        }
    };
    drop(directory);
    request.gather = Some(gather);
    request.reply_held = held;
    requests.set_reply_bytes(no, held_bytes);
    Ok(())
}

/// Reserves memory for a reply with `bytes` of rows. The batch itself holds `own` bytes already, and other replies of
/// its flow hold `of_flow` bytes. A flow that has replies in progress must leave some memory for other flows.
fn hold(core: &Core, bytes: u64, own: u64, of_flow: u64) -> Result<HeldBytes, Fault> {
    let memory = &core.traffic_memory;
    memory.hold_for_flow(bytes, own, of_flow).map_err(|lacks| {
        core.stats.shed.add(1);
        let holders = match lacks {
            NoRoom::OfFlow => format!("replies to the caller's grant hold {of_flow} bytes"),
            NoRoom::OfAll => {
                format!("batches and replies use {} bytes of the core's memory", memory.used())
            }
        };
        let what = format!("{holders} already; read your replies, or try again later");
        Fault::new(Reason::Overloaded, what)
    })
}

/// The maximum bytes of rows in one reply: half of a message, to leave room for the other fields.
pub const REPLY_BYTES_MAX: u64 = wire::MESSAGE_BYTES_MAX as u64 / 2;

impl Gather {
    /// Puts `bytes` of the row at `position` into the part with number `part`. The bytes begin at `offset` within the
    /// row. If rows are scored, `bytes` must be the whole row.
    ///
    /// # Errors
    /// The bytes are not a valid row.
    #[inline]
    pub fn put(
        &mut self,
        part: usize,
        position: usize,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), PackError> {
        match self {
            Gather::Rows(assemblers) => assemblers[part].put_piece(position, offset, bytes),
            Gather::Score(scorer) => {
                scorer.score(position, bytes);
                Ok(())
            }
        }
    }

    /// Puts the rows of an image, which came from the table, into the part with number `part`.
    pub fn put_image(
        &mut self,
        part: usize,
        image: &Extent,
        sources: &[RowSource],
    ) -> Result<(), PackError> {
        for (position, source) in sources.iter().enumerate() {
            let RowSource::Table(row) = *source else { continue };
            if image.index.is_null(row) {
                continue;
            }
            let Some(span) = image.index.span(row) else { continue };
            let start = span.offset as usize;
            self.put(part, position, 0, &image.bytes[start..start + span.len as usize])?;
        }
        Ok(())
    }
}

/// The content of a reply.
pub enum Assembled {
    /// Columns, in the projection's order.
    Columns(Vec<ArrayData>),
    /// The nearest rows, nearest first: their positions among the requested rows that exist, and their distances.
    Nearest(Vec<(usize, f32)>),
    /// The positions, ascending, of the rows that pass the request's predicate.
    Passing(Vec<u32>),
}

/// Returns the content of the reply to a request whose rows have all arrived.
///
/// # Errors
/// A row cannot be decoded.
pub fn finish(request: &mut Request) -> Result<Assembled, NodeError> {
    let columns = match request.gather.take() {
        Some(Gather::Score(scorer)) => return Ok(Assembled::Nearest(scorer.nearest())),
        Some(Gather::Rows(assemblers)) => {
            let mut columns: Vec<Option<ArrayData>> =
                vec![None; request.projection.schema.fields().len()];
            for (part, assembler) in request.projection.parts.iter().zip(assemblers) {
                for (&output, column) in part.outputs.iter().zip(assembler.finish()?) {
                    columns[output] = Some(column);
                }
            }
            columns.into_iter().flatten().collect()
        }
        None => Vec::new(),
    };
    if let Some(predicate) = &request.predicate {
        let fields = request.projection.schema.fields().iter();
        let columns = fields.zip(columns).map(|(field, column)| {
            // The columns have physical types (text is binary), because a reply has only their buffers. The predicate
            // needs the projection's types.
            let column = column.into_builder().data_type(field.data_type().clone());
            column.align_buffers(true).build().map(make_array)
        });
        let columns: Vec<_> = columns.collect::<Result<_, _>>().map_err(NodeError::Predicate)?;
        return Ok(Assembled::Passing(predicate.passing(&columns).map_err(NodeError::Predicate)?));
    }
    Ok(match &request.rerank {
        Some(by) => Assembled::Nearest(score_columns(by, &columns)),
        None => Assembled::Columns(columns),
    })
}
