// What is asked of a run, from the environment.

const text = (name, otherwise) => __ENV[name] || otherwise;
const tls = (ca, cert, key) =>
  ca && { cacerts: [open(ca)], ...(cert && { cert: open(cert), key: open(key) }) };
const number = (name, otherwise) => Number(text(name, otherwise));

export const setting = {
  scenario: text('SCENARIO', 'mixed'),
  // 'constant': the rate all the time; 'ramping': from nothing to the rate.
  executor: text('EXECUTOR', 'constant'),
  rate: number('RATE', 20),
  duration: text('DURATION', '30s'),
  // How long all requests may take at once before a caller is missing, and the next one can't start in time.
  stall: number('STALL_S', 0.25),
  // With `ceiling`, how many ask again as soon as they are answered.
  callers: number('CALLERS', 4),
  // Query nodes and I/O nodes, each separated by commas.
  query: text('QUERY', '127.0.0.1:7070').split(','),
  io: text('IO', '127.0.0.1:7071').split(','),
  // Where those are told instead that are there at the time, while `scale` makes tiers grow (loadtest/growth).
  tiers: text('TIERS', ''),
  // What the stages of `scale` are called.
  stages: text('STAGES', 'x1,x2,x4,x8').split(','),
  table: text('TABLE', 'wordnet'),
  // Where the table is, as I/O nodes have it in `serve`.
  tableUri: text('TABLE_URI', ''),
  k: number('K', 10),
  // Rows in one batch of a Fetch stream, and batches on one stream.
  batchRows: number('BATCH_ROWS', 100),
  batches: number('BATCHES', 10),
  // What must hold.
  p99: number('P99_MS', 500),
  errors: number('ERRORS_MAX', 0.001),
  shed: number('SHED_MAX', 0.01),
  // With the authorities of their certificates, tiers are spoken to by TLS; with a certificate of one's own, where they
  // ask for one.
  tls: tls(text('TLS_CA', ''), text('TLS_CERT', ''), text('TLS_KEY', '')),
  // The names in their certificates, where they are not what is connected to.
  queryName: text('QUERY_NAME', ''),
  ioName: text('IO_NAME', ''),
  protos: text('PROTOS', '../../proto').split(','),
  output: text('OUTPUT', '.'),
};
