// Reads Arrow IPC streams of a few plain columns, the format of rows in answers: k6 has no Arrow library.
//
// A stream consists of messages: 0xFFFFFFFF, the length of a flatbuffer, the flatbuffer, the body. A record batch's
// flatbuffer has the position of each buffer in the body. The caller knows the schema, so its message is skipped. Nulls
// and dictionaries are not supported.

const RECORD_BATCH = 3;

// Returns the columns of all batches of `bytes` (an ArrayBuffer), an array of values each. `kinds` is the list of the
// columns' types: 'text', 'vector' or 'u64'.
export function columns(bytes, kinds) {
  const view = new DataView(bytes);
  const all = kinds.map(() => []);
  let at = 0;
  while (at + 8 <= view.byteLength) {
    const metadataBytes = view.getInt32(at + 4, true);
    if (metadataBytes === 0) break;
    const message = table(view, at + 8);
    const body = at + 8 + metadataBytes;
    if (view.getUint8(message.field(1)) === RECORD_BATCH) {
      batch(view, table(view, message.field(2)), body, kinds).forEach((values, i) => all[i].push(...values));
    }
    const lengthAt = message.field(3);
    at = body + (lengthAt ? Number(view.getBigInt64(lengthAt, true)) : 0);
  }
  return all;
}

// Returns the flatbuffer table to which the offset at `offsetAt` points. `field` gives a field's position, 0 if absent.
function table(view, offsetAt) {
  const start = offsetAt + view.getUint32(offsetAt, true);
  const vtable = start - view.getInt32(start, true);
  const size = view.getUint16(vtable, true);
  const field = (number) => {
    const slot = 4 + 2 * number;
    const offset = slot < size ? view.getUint16(vtable + slot, true) : 0;
    return offset ? start + offset : 0;
  };
  return { field };
}

// Returns the columns of one record batch. Its header has the number of rows, nodes, and buffers as two 64-bit numbers.
function batch(view, header, body, kinds) {
  const rows = Number(view.getBigInt64(header.field(0), true));
  const buffersAt = header.field(2) + view.getUint32(header.field(2), true) + 4;
  const buffer = (number) => body + Number(view.getBigInt64(buffersAt + 16 * number, true));
  const length = (number) => Number(view.getBigInt64(buffersAt + 16 * number + 8, true));
  let next = 0;
  return kinds.map((kind) => {
    const first = next;
    if (kind === 'text') {
      next += 3; // validity, offsets, characters
      return texts(view, rows, buffer(first + 1), buffer(first + 2));
    }
    if (kind === 'vector') {
      next += 3; // validity, the elements' validity, elements
      return vectors(view, rows, buffer(first + 2), length(first + 2));
    }
    next += 2; // validity, numbers
    return numbers(view, rows, buffer(first + 1));
  });
}

function texts(view, rows, offsets, characters) {
  return Array.from({ length: rows }, (_, row) => {
    const from = view.getInt32(offsets + 4 * row, true);
    const to = view.getInt32(offsets + 4 * row + 4, true);
    return decoded(new Uint8Array(view.buffer, characters + from, to - from));
  });
}

function vectors(view, rows, elements, bytes) {
  const dimension = Math.floor(bytes / 4 / Math.max(rows, 1));
  return Array.from({ length: rows }, (_, row) =>
    Array.from({ length: dimension }, (__, i) => view.getFloat32(elements + 4 * (row * dimension + i), true)));
}

function numbers(view, rows, at) {
  return Array.from({ length: rows }, (_, row) => view.getBigUint64(at + 8 * row, true).toString());
}

function decoded(utf8) {
  return decodeURIComponent(Array.from(utf8, (byte) => `%${byte.toString(16).padStart(2, '0')}`).join(''));
}
