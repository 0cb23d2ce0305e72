import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Model } from "../../scripts/model/compile.ts";
import { followTrace, modelOfTraces } from "../../scripts/model/follow.ts";
import type { Step, Trace, TracedEvent, TracedResponse } from "../../scripts/model/trace.ts";
import { compileCache } from "../compile-cache.ts";

/** Short ones, one of them with relays. */
const seeds = ["4", "6", "102"];

const timeout = 900_000;

/** Changes the first step for which `change` returns another; undefined: no step was changed. */
function planted(
  trace: Trace,
  change: (step: Step, before: readonly Step[], after: readonly Step[]) => Step | undefined,
): Trace | undefined {
  for (const [i, step] of trace.steps.entries()) {
    const changed = change(step, trace.steps.slice(0, i), trace.steps.slice(i + 1));
    if (changed !== undefined) return { ...trace, steps: trace.steps.with(i, changed) };
  }
  return undefined;
}

/** The first live response of at least so many events is changed. */
function inResponse(
  events: number,
  change: (response: TracedResponse) => Partial<TracedResponse>,
): (step: Step) => Step | undefined {
  return (step) => {
    if (step.step !== "response" || step.response.isInitial) return undefined;
    if (step.response.events.length < events) return undefined;
    return { ...step, response: { ...step.response, ...change(step.response) } };
  };
}

function inFirst(change: (event: TracedEvent) => Partial<TracedEvent>) {
  return ({ events: [first, ...others] }: TracedResponse): Partial<TracedResponse> =>
    first === undefined ? {} : { events: [{ ...first, ...change(first) }, ...others] };
}

/** The first read with objects is changed. */
function inRead(change: (response: TracedResponse) => Partial<TracedResponse>) {
  return (step: Step, before: readonly Step[]): Step | undefined => {
    const call = before.findLast(({ step: kind }) => kind === "call");
    if (call?.step !== "call" || (call.begins !== "list" && call.begins !== "any"))
      return undefined;
    if (step.step !== "response" || step.response.events.length === 0) return undefined;
    return { ...step, response: { ...step.response, ...change(step.response) } };
  };
}

/** The first outcome of a kind is changed. */
function inOutcome(
  of: "acknowledged" | "refused",
  change: Partial<Extract<Step, { step: "written" }>>,
) {
  return (step: Step): Step | undefined =>
    step.step === "written" && step.outcome === of ? { ...step, ...change } : undefined;
}

const violations: Readonly<Record<string, Parameters<typeof planted>[1]>> = {
  "an event is missing": inResponse(1, ({ events }) => ({ events: events.slice(1) })),
  "events are in another order": inResponse(2, ({ events }) => ({ events: events.toReversed() })),
  "an event comes twice": inResponse(1, ({ events }) => ({ events: [...events, ...events] })),
  "a resume point is above what was delivered": inResponse(1, ({ revision }) => ({
    revision: revision + 1,
  })),
  "a bookmark is above etcd's revision": (step) =>
    step.step === "response" && step.response.events.length === 0 && !step.response.isInitial
      ? { ...step, response: { ...step.response, revision: step.response.revision + 1_000 } }
      : undefined,
  "an event has another type": inResponse(
    1,
    inFirst(({ kind }) => ({ kind: kind === "ADDED" ? "MODIFIED" : "ADDED" })),
  ),
  "an event has another object before": (step) =>
    inResponse(
      1,
      inFirst(({ previous }) => ({ previous: previous + 1 })),
    )(step),
  "an object was created at another revision": inResponse(
    1,
    inFirst(({ create }) => ({ create: create + 1 })),
  ),
  "an initial state lacks an object": (step) =>
    step.step === "response" && step.response.isInitial && step.response.events.length > 0
      ? { ...step, response: { ...step.response, events: step.response.events.slice(1) } }
      : undefined,
  "an end names another resume point": (step) =>
    step.step === "end" && step.resume !== undefined
      ? { ...step, resume: step.resume + 1 }
      : undefined,
  "an end without a cause": (step) =>
    step.step === "end" && step.reason === "" ? { ...step, reason: "HISTORY_LOST" } : undefined,
  "another history is named": (step, before) =>
    step.step === "response" && before.some(({ step: kind }) => kind === "response")
      ? { ...step, response: { ...step.response, id: 77 } }
      : undefined,
  "a replica watches from a later revision than its list": (step, _, after) => {
    if (step.step !== "follow") return undefined;
    const next = after.find((other) => other.step === "apply" && other.server === step.server);
    const hasNext = next?.step === "apply" && next.revision === step.after + 1;
    return hasNext && next.updates.length > 0 ? { ...step, after: step.after + 1 } : undefined;
  },
  "a replica's watch omits a change": (step) =>
    step.step === "apply" && step.updates.length > 0
      ? { ...step, updates: step.updates.slice(1) }
      : undefined,
  "a read lacks an object": inRead(({ events }) => ({ events: events.slice(1) })),
  "a read has an older object": inRead(inFirst(({ mod }) => ({ mod: mod - 1 }))),
  "a read is of a later revision": inRead(({ revision }) => ({ revision: revision + 1_000 })),
  "a linearizable read is older than what was written before": (step, before) => {
    if (step.step !== "response" || before.at(-1)?.step !== "call") return undefined;
    const call = before.at(-1);
    const isLinearizable = call?.step === "call" && call.begins === "list";
    const { revision } = step.response;
    const isCurrent = before.some((one) => one.step === "commit" && one.revision === revision);
    if (!isLinearizable || !isCurrent) return undefined;
    return { ...step, response: { ...step.response, revision: revision - 1 } };
  },
  "a write is acknowledged at another revision": (step) =>
    step.step === "written" && step.revision !== undefined
      ? { ...step, revision: step.revision + 1 }
      : undefined,
  "a write that was done is refused": inOutcome("acknowledged", {
    ...{ outcome: "refused", revision: undefined },
  }),
  "a write that was refused is acknowledged": inOutcome("refused", { outcome: "acknowledged" }),
  "a write is refused for a conflict that there was not": inOutcome("acknowledged", {
    ...{ outcome: "refused", revision: undefined, isConflict: true },
  }),
  "a write is done, and no write was under way": (step, before) =>
    step.step === "commit" && before.some(({ step: kind }) => kind === "written")
      ? { ...step, isOwn: true }
      : undefined,
};

describe("What the code does", () => {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-traces-"));
  let traces: readonly Trace[] = [];
  let model: Model;

  beforeAll(async () => {
    for (const seed of seeds) {
      const run = new URL("../simulation/run.ts", import.meta.url).pathname;
      const options = ["--seed", seed, "--seeds", "1", "--no-shrink", "--record", folder];
      const args = ["--disable-warning=ExperimentalWarning", run, ...options];
      const env = { ...process.env, ...compileCache };
      const child = spawn(process.execPath, args, { env, stdio: "ignore" });
      expect(await once(child, "close")).toEqual([0, null]);
    }
    traces = readdirSync(folder)
      .sort()
      .map((file) => JSON.parse(readFileSync(join(folder, file), "utf8")) as Trace);
    model = modelOfTraces(traces[0]?.keys.length ?? 0);
  }, timeout);

  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test("is a behaviour of the model", { timeout }, () => {
    expect(traces.length).toBeGreaterThan(8);
    for (const trace of traces) {
      expect(followTrace(model, trace), trace.name).toMatchObject({ isBehaviour: true });
    }
  });

  test.each(Object.entries(violations))("would not be one if %s", { timeout }, (_, violation) => {
    const found = traces
      .filter(({ hasPrevious, isLatestState }) => hasPrevious && !isLatestState)
      .concat(traces)
      .map((trace) => planted(trace, violation))
      .find((trace) => trace !== undefined);
    expect(found && followTrace(model, found)).toMatchObject({ isBehaviour: false });
  });
});
