//! Requests rows from their table if they are on no drive, or if a drive failed to deliver them. Such rows are slow, so
//! they are counted.

use std::sync::Arc;

use address::RowAddr;
use pack::Extent;
use tokio_util::sync::CancellationToken;
use wire::{Fault, Reason};

use super::Core;
use super::assemble::REPLY_BYTES_MAX;
use super::requests::RowSource;
use super::table_reader::{PartRows, TableRead};
use crate::shard::{HeldBytes, RequestNo};
use crate::table::{PackProjection, Projection};

/// Requests the rows whose source is the table. Returns whether the request waits for such rows.
///
/// # Errors
/// Too many reads of tables wait, or there is no memory for the rows.
pub fn request_rows(core: &Core, no: RequestNo) -> Result<bool, Fault> {
    let mut requests = core.requests.borrow_mut();
    let Some(request) = requests.get_mut(no) else { return Ok(true) };
    // Bytes reserved for the images of earlier parts.
    let mut asked = 0;
    for part in 0..request.sources.len() {
        let is_table = |s: &RowSource| matches!(s, RowSource::Table(_));
        if request.images[part].is_some() || !request.sources[part].iter().any(is_table) {
            continue;
        }
        let sources = request.sources[part].iter().enumerate();
        let addrs: Vec<_> = sources
            .filter(|(_, source)| is_table(source))
            .map(|(position, _)| RowAddr::from_u64(request.addr(position)))
            .collect();
        request.times.table_rows += addrs.len() as u32;
        let columns = &request.projection.parts[part];
        let bytes: u64 =
            addrs.iter().map(|&addr| read_bytes(&request.projection, columns, addr)).sum();
        // The estimate is rough, and what the rows really take is not counted: rows of a blob column are read up to
        // `bytes_max`, and all other rows whole, even if they are larger than estimated. `assemble::prepare` then
        // refuses a reply that is too large. Without the bound on the next line, an estimate above the core's whole
        // memory would be refused as long as any other message holds memory.
        let bytes = bytes.min(core.traffic_memory.max() / 2);
        let held = core
            .traffic_memory
            .hold(bytes, asked + request.held_bytes())
            .ok_or_else(|| out_of_memory(core, bytes))?;
        let (projection, deadline) = (Arc::clone(&request.projection), request.deadline);
        asked += bytes;
        let rows = PartRows { projection, part, addrs, bytes_max: REPLY_BYTES_MAX };
        let (flow, priority) = (request.flow, request.priority);
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        let wanted = TableRead { rows, flow, priority, deadline, held, stop };
        let mailbox = core.node.mailboxes[core.number].clone();
        let taken = core.node.table_reader.take(wanted, no, mailbox);
        taken.inspect_err(|_| core.stats.shed.add(1))?;
        request.images_left += 1;
        request.table_reads.push(guard);
    }
    Ok(request.images_left > 0)
}

/// Estimates the bytes of memory needed to read a row of a part from its table: Lance's columns, and the image.
fn read_bytes(projection: &Projection, part: &PackProjection, addr: RowAddr) -> u64 {
    let variable = match part.is_variable {
        true => projection.table.variable_bytes(addr.fragment()),
        false => 0,
    };
    2 * (part.fixed_bytes + variable)
}

fn out_of_memory(core: &Core, bytes: u64) -> Fault {
    core.stats.shed.add(1);
    let what = format!(
        "there is no memory left to read {bytes} bytes from the table; try again later, or ask for fewer rows a batch"
    );
    Fault::new(Reason::Overloaded, what)
}

/// Stores an image. Returns whether it was the last one that the request waited for.
pub fn arrived(core: &Core, no: RequestNo, part: usize, image: Extent, held: HeldBytes) -> bool {
    let mut requests = core.requests.borrow_mut();
    let Some(request) = requests.get_mut(no) else { return false };
    request.images[part] = Some(image);
    request.images_held = std::mem::take(&mut request.images_held).and(held);
    request.images_left -= 1;
    request.images_left == 0
}
