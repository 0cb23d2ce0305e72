import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Benchmark, Outcome, Say, Settings } from "./benchmark.ts";
import { measureFanout } from "./fanout.ts";
import { tableLine } from "./report.ts";
import { resource, tlsFiles, withServers } from "./servers.ts";
import { median } from "./statistics.ts";

/** Number of roles and bindings of the policy; the one that allows the watches is the last. */
const roles = 1_000;

const maxRatio = 1.05;
const widths = [10, 8, 12, 14, 13];

/** How the load connects: in plain text without a credential, or with a client certificate. */
const transports = {
  plain: { terms: {}, args: [], caller: "anonymous" },
  // The certificate is its own authority; its DNS name is the caller.
  mtls: { terms: { isTls: true }, args: ["--tls-client-ca", tlsFiles.cert], caller: "localhost" },
} as const;

type Transport = keyof typeof transports;

/**
 * The cost of an event that is delivered under a policy with an audit log, and without either, in plain text and with
 * identities by mTLS: the same measurement as `fanout`, alternately, so that other activity of the machine affects both.
 */
export const policyCost: Benchmark = {
  name: "policy-cost",
  onlyByName: true,
  options: {
    ...{ streams: "1000", connections: "20", "value-bytes": "256", seconds: "5" },
    rounds: "5",
  },
  async run(settings, say) {
    const folder = await mkdtemp(join(tmpdir(), "watch-fanout-bench-"));
    try {
      const audit = ["--audit-log", join(folder, "audit.log"), "--audit-level", "all"];
      const outcomes: Outcome[] = [];
      for (const transport of ["plain", "mtls"] as const) {
        const policy = join(folder, `${transport}.yaml`);
        await writeFile(policy, policyText(transports[transport].caller));
        const args = ["--policy", policy, ...audit];
        outcomes.push(await compareWith(transport, args, settings, say));
      }
      return {
        rows: outcomes.flatMap(({ rows }) => rows),
        results: outcomes.map(({ results }) => results),
      };
    } finally {
      await rm(folder, { recursive: true });
    }
  },
};

async function compareWith(
  transport: Transport,
  policyArgs: readonly string[],
  settings: Settings,
  say: Say,
): Promise<Outcome> {
  const shape = {
    streams: settings.number("streams"),
    connections: settings.number("connections"),
  };
  const micros = { without: [] as number[], with: [] as number[] };
  const { terms, args: transportArgs } = transports[transport];
  say(tableLine(["transport", "round", "policy", "events/s", "CPU µs/event"], widths));
  for (let round = 0; round < settings.number("rounds"); round++) {
    // The first of a pair has no advantage in the long run.
    const order = round % 2 === 0 ? (["without", "with"] as const) : (["with", "without"] as const);
    for (const which of order) {
      const serviceArgs = [...transportArgs, ...(which === "with" ? policyArgs : [])];
      const result = await withServers(
        "watch-fanout",
        (servers) => measureFanout(servers, shape, settings),
        [],
        { ...terms, serviceArgs },
      );
      micros[which].push(result.frontCpuMicros);
      const events = Math.round(result.eventsPerSecond).toLocaleString("en");
      say(
        tableLine(
          [transport, String(round), which, events, result.frontCpuMicros.toFixed(3)],
          widths,
        ),
      );
    }
  }
  const ratio = median(micros.with) / median(micros.without);
  const row = {
    what: `the service's CPU per delivered event with a policy and audit, ${transport}, ${shape.streams} streams, ${shape.connections} connections`,
    unit: "µs",
    watchFanout: median(micros.with),
    ratios: [{ of: `${transport} without a policy`, value: ratio }],
    goal: "at most 5 % more than without",
    met: ratio <= maxRatio,
  };
  return { rows: [row], results: { transport, ...micros } };
}

function policyText(caller: string): string {
  const names = Array.from({ length: roles }, (_, index) => `role-${index}`);
  const rules = [{ resources: [resource], prefixes: ["*"], verbs: ["list", "watch"] }];
  const bindings = names.map((role, index) => ({
    role,
    subjects: [index === roles - 1 ? caller : `spiffe://corp/ns/${role}/*`],
  }));
  // JSON is YAML.
  return JSON.stringify({ roles: names.map((name) => ({ name, rules })), bindings });
}
