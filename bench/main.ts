/**
 * Benchmarks: `npm run bench` runs all of them, `npm run bench -- fanout` one. What is measured, and
 * how, is said in docs/benchmarks.md.
 */
import { arch, cpus } from "node:os";
import { parseArgs } from "node:util";
import { measureFanout } from "./fanout.ts";
import { ratios, row, rowHeadings } from "./report.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: "boolean", default: false },
    streams: { type: "string", default: "1,100,1000" },
    connections: { type: "string", default: "20" },
    "value-bytes": { type: "string", default: "256" },
    seconds: { type: "string", default: "5" },
  },
});

const unknown = positionals.filter((name) => name !== "fanout");
if (unknown.length > 0) {
  process.stderr.write(`There is no benchmark ${unknown.join(", ")}. There is: fanout.\n`);
  process.exit(2);
}

const results = [];
const machine = `${cpus().length} × ${cpus()[0]?.model ?? arch()}, Node.js ${process.version}`;
if (!values.json) process.stdout.write(`${machine}\n\n${rowHeadings}\n`);
const measurements = measureFanout({
  streams: values.streams.split(",").map(positive),
  connections: positive(values.connections),
  valueBytes: positive(values["value-bytes"]),
  seconds: positive(values.seconds),
});
for await (const result of measurements) {
  results.push(result);
  if (!values.json) process.stdout.write(`${row(result)}\n`);
}
const compared = ratios(results);
if (values.json) {
  process.stdout.write(`${JSON.stringify({ machine, ratios: compared, results }, null, 2)}\n`);
} else {
  process.stdout.write("\nwatch-fanout compared with etcd itself:\n");
  for (const { streams, throughput, cpu, etcdCpu } of compared) {
    process.stdout.write(
      `  ${streams} streams: ${times(throughput)} the events a second, ${times(cpu)} the CPU per ` +
        `event in all, ${times(etcdCpu)} of etcd's own\n`,
    );
  }
}

function positive(text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value > 0) return value;
  process.stderr.write(`${JSON.stringify(text)} is not a whole number above 0.\n`);
  process.exit(2);
}

function times(ratio: number): string {
  return `${ratio.toPrecision(2)} ×`;
}
