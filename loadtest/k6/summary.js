// Writes a run's results as JSON and Markdown. k6's own dashboard makes the HTML page.

import { setting } from './setting.js';
import { servedByStage } from './tiers.js';

const TIMES = ['med', 'p(90)', 'p(99)', 'max'];

export function summary(data) {
  const found = results(data);
  const text = markdown(found);
  const file = (extension) => `${setting.output}/${setting.scenario}-${setting.executor}.${extension}`;
  return { [file('json')]: `${JSON.stringify(found, null, 2)}\n`, [file('md')]: text, stdout: text };
}

function results(data) {
  const value = (metric, name) => (data.metrics[metric] ? data.metrics[metric].values[name] : 0);
  // Counts the requests with these tags.
  const outcome = (tags) => ({
    answered: value(`bireme_errors{${tags}}`, 'passes') + value(`bireme_errors{${tags}}`, 'fails'),
    errors: value(`bireme_errors{${tags}}`, 'rate'),
    shed: value(`bireme_shed{${tags}}`, 'rate'),
  });
  const times = (tags) => Object.fromEntries(TIMES.map((time) => [time, value(`bireme_duration{${tags}}`, time)]));
  const kinds = Object.keys(data.metrics)
    .map((name) => /^bireme_duration\{request:(\w+)\}$/.exec(name))
    .filter(Boolean)
    .map(([, request]) => request);
  const requests = kinds.map((request) => ({
    request, ...outcome(`request:${request}`), milliseconds: times(`request:${request}`),
  }));
  const failed = Object.entries(data.metrics).flatMap(([name, { thresholds }]) =>
    Object.entries(thresholds || {}).filter(([, { ok }]) => !ok).map(([bound]) => `${name} ${bound}`));
  const { scenario, executor, rate, duration, table } = setting;
  const late = value('dropped_iterations', 'count');
  const found = { scenario, executor, rate, duration, table, requests, late, failed };
  if (scenario !== 'scale') return found;
  const stages = setting.stages.map((stage) => ({
    stage,
    ...outcome(`stage:${stage}`),
    milliseconds: Object.fromEntries(kinds.map((request) => [request, times(`stage:${stage},request:${request}`)])),
  }));
  return { ...found, stages, tiers: servedByStage() };
}

// A time of 0 means that there was no request.
const ms = (time) => (time ? time.toFixed(1) : '–');
const percent = (share) => `${(100 * share).toFixed(2)} %`;

function markdown({ scenario, executor, rate, requests, late, failed, stages, tiers }) {
  const rows = requests.map(({ request, answered, milliseconds, errors, shed }) =>
    [request, answered, ...TIMES.map((time) => ms(milliseconds[time])), percent(errors), percent(shed)]);
  return [
    `## ${scenario}, ${executor}, ${rate}/s`,
    '',
    ...table(['request', 'answered', ...TIMES.map((time) => `${time}, ms`), 'errors', 'shed'], rows),
    ...(stages ? byStage(stages, requests) : []),
    ...(tiers && tiers.length ? byNode(tiers) : []),
    `Iterations that could not start in time: ${late}. ${failed.length ? `**Does not hold:** ${failed.join('; ')}` : 'All thresholds hold.'}`,
    '',
    '',
  ].join('\n');
}

// Returns the table of latencies and errors by stage.
function byStage(stages, requests) {
  const kinds = requests.map(({ request }) => request);
  const rows = stages.map(({ stage, answered, milliseconds, errors, shed }) =>
    [stage, answered, ...kinds.map((kind) => ms(milliseconds[kind]['p(99)'])), percent(errors), percent(shed)]);
  return table(['stage', 'answered', ...kinds.map((kind) => `${kind} p(99), ms`), 'errors', 'shed'], rows);
}

// Returns the table of the rows and requests that each node served, by stage.
function byNode(tiers) {
  const names = Object.keys(tiers[tiers.length - 1].nodes).sort();
  const served = ({ rows, requests, from_table }) => `${rows === undefined ? requests : rows}${from_table ? ` (${from_table})` : ''}`;
  const rows = tiers.map(({ stage, seconds, nodes }) =>
    [stage, seconds.toFixed(1), ...names.map((name) => (nodes[name] ? served(nodes[name]) : ''))]);
  const head = names.map((name) => `${name}, ${name.startsWith('io') ? 'rows' : 'requests'}`);
  return [
    'I/O nodes + query nodes, and what each of them served; in brackets, rows that came from the table:',
    '',
    ...table(['stage', 'seconds', ...head], rows),
  ];
}

function table(head, rows) {
  const line = (cells) => `| ${cells.join(' | ')} |`;
  return [line(head), `|${'---|'.repeat(head.length)}`, ...rows.map(line), ''];
}
