// What a run came to: JSON for programs, Markdown for people. k6's own dashboard makes the HTML page.

import { setting } from './setting.js';

const TIMES = ['med', 'p(90)', 'p(99)', 'max'];

export function summary(data) {
  const found = results(data);
  const text = markdown(found);
  const file = (extension) => `${setting.output}/${setting.scenario}-${setting.executor}.${extension}`;
  return { [file('json')]: `${JSON.stringify(found, null, 2)}\n`, [file('md')]: text, stdout: text };
}

function results(data) {
  const value = (metric, name) => (data.metrics[metric] ? data.metrics[metric].values[name] : 0);
  const of = (metric, request, name) => value(`${metric}{request:${request}}`, name);
  const kinds = Object.keys(data.metrics)
    .map((name) => /^bireme_duration\{request:(\w+)\}$/.exec(name))
    .filter(Boolean)
    .map(([, request]) => request);
  const requests = kinds.map((request) => ({
    request,
    answered: of('bireme_errors', request, 'passes') + of('bireme_errors', request, 'fails'),
    errors: of('bireme_errors', request, 'rate'),
    shed: of('bireme_shed', request, 'rate'),
    milliseconds: Object.fromEntries(TIMES.map((time) => [time, of('bireme_duration', request, time)])),
  }));
  const failed = Object.entries(data.metrics).flatMap(([name, { thresholds }]) =>
    Object.entries(thresholds || {}).filter(([, { ok }]) => !ok).map(([bound]) => `${name} ${bound}`));
  const { scenario, executor, rate, duration, table } = setting;
  return { scenario, executor, rate, duration, table, requests, late: value('dropped_iterations', 'count'), failed };
}

function markdown({ scenario, executor, rate, requests, late, failed }) {
  const ms = (time) => (time === undefined ? '–' : time.toFixed(1));
  const percent = (share) => `${(100 * share).toFixed(2)} %`;
  const rows = requests.map((of) => `| ${of.request} | ${of.answered} | ${TIMES.map((t) => ms(of.milliseconds[t])).join(' | ')} `
    + `| ${percent(of.errors)} | ${percent(of.shed)} |`);
  return [
    `## ${scenario}, ${executor}, ${rate}/s`,
    '',
    `| request | answered | ${TIMES.map((time) => `${time}, ms`).join(' | ')} | errors | shed |`,
    '|---|---|---|---|---|---|---|---|',
    ...rows,
    '',
    `Iterations that could not start in time: ${late}. ${failed.length ? `**Does not hold:** ${failed.join('; ')}` : 'All thresholds hold.'}`,
    '',
    '',
  ].join('\n');
}
