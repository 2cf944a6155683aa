// The settings of a run, from the environment.

const text = (name, otherwise) => __ENV[name] || otherwise;
const tls = (ca, cert, key) =>
  ca && { cacerts: [open(ca)], ...(cert && { cert: open(cert), key: open(key) }) };
const number = (name, otherwise) => Number(text(name, otherwise));

export const setting = {
  scenario: text('SCENARIO', 'mixed'),
  // 'constant' keeps the rate; 'ramping' raises it from zero.
  executor: text('EXECUTOR', 'constant'),
  rate: number('RATE', 20),
  duration: text('DURATION', '30s'),
  // There are enough callers that requests start in time even if no answer comes for this many seconds.
  stall: number('STALL_S', 0.25),
  // The number of callers of ceiling.js.
  callers: number('CALLERS', 4),
  // Addresses of query nodes and I/O nodes, separated by commas.
  query: text('QUERY', '127.0.0.1:7070').split(','),
  io: text('IO', '127.0.0.1:7071').split(','),
  // The URL of loadtest/growth, which `scale` asks for the current nodes.
  tiers: text('TIERS', ''),
  // The names of the stages of `scale`.
  stages: text('STAGES', 'x1,x2,x4,x8').split(','),
  table: text('TABLE', 'wordnet'),
  // The table's URI, as in `serve` of the I/O nodes.
  tableUri: text('TABLE_URI', ''),
  k: number('K', 10),
  // The SQL predicate of search_filtered; by default, the upper half of the table's keys pass.
  filter: text('FILTER', ''),
  // The share of the nearest rows that search_recall asks for.
  recall: number('RECALL', 0.95),
  // Rows in one batch of a Fetch stream, and batches on one stream.
  batchRows: number('BATCH_ROWS', 100),
  batches: number('BATCHES', 10),
  // Thresholds: the highest p99 in milliseconds, and the highest shares of failed and shed requests.
  p99: number('P99_MS', 500),
  errors: number('ERRORS_MAX', 0.001),
  shed: number('SHED_MAX', ['spike', 'scale'].includes(text('SCENARIO', 'mixed')) ? 0.9 : 0.01),
  // TLS_CA, the authorities of the nodes' certificates, turns TLS on; TLS_CERT and TLS_KEY are the client's
  // certificate, if nodes require one. IO_TLS_CA, IO_TLS_CERT and IO_TLS_KEY are those for I/O nodes, if they differ.
  tls: tls(text('TLS_CA', ''), text('TLS_CERT', ''), text('TLS_KEY', '')),
  ioTls: tls(text('IO_TLS_CA', ''), text('IO_TLS_CERT', ''), text('IO_TLS_KEY', '')),
  // The names in the nodes' certificates, where they differ from the addresses.
  queryName: text('QUERY_NAME', ''),
  ioName: text('IO_NAME', ''),
  protos: text('PROTOS', '../../proto').split(','),
  output: text('OUTPUT', '.'),
};
