import { describe, expect, test } from "vitest";
import { followTrace, modelOfTraces } from "../../scripts/model/follow.ts";
import type { Step, Trace } from "../../scripts/model/trace.ts";

const model = modelOfTraces(1);

function traceOf(roots: readonly string[], steps: readonly Step[]): Trace {
  const client = { isLatestState: false, hasPrevious: false, keys: ["a"] };
  return { ...client, name: "a trace", roots, relays: ["relay 1.0", "relay 2.0"], steps };
}

function follows(server: string, after: number): Step {
  return { step: "follow", server, after };
}

function applies(server: string, ...revisions: readonly number[]): Step {
  const updates = revisions.map((revision) => ({ key: 1, revision }));
  return { step: "apply", server, revision: revisions.at(-1) ?? 0, updates };
}

function commits(revision: number): Step {
  return { step: "commit", revision, matching: [1], others: [], removed: [] };
}

describe("A relay of the second tier that resumes at a relay which was started again", () => {
  const begin = ["root 0", "relay 1.0", "relay 2.0"].map((server) => follows(server, 1));
  const restart: Step[] = [
    { step: "start", server: "relay 1.0" },
    commits(2),
    applies("root 0", 2),
    commits(3),
    applies("root 0", 3),
    { step: "start", server: "root 0" },
  ];
  const resume = [
    ...["root 0", "relay 1.0"].map((server) => follows(server, 3)),
    ...[follows("relay 2.0", 1), applies("relay 2.0", 2, 3)],
  ];

  test("receives what that one and its root have read of the time before their lists", () => {
    const trace = traceOf(["root 0"], [...begin, ...restart, ...resume]);
    expect(followTrace(model, trace)).toMatchObject({ isBehaviour: true });
  });

  test("can't miss one of the changes", () => {
    const missing = [...resume.slice(0, -1), { ...applies("relay 2.0", 3) }];
    const trace = traceOf(["root 0"], [...begin, ...restart, ...missing]);
    expect(followTrace(model, trace)).toMatchObject({ isBehaviour: false, at: 12 });
  });

  test("can't receive what etcd was compacted past before the root listed", () => {
    const compacted: Step = { step: "compact", revision: 3 };
    const trace = traceOf(["root 0"], [...begin, ...restart, compacted, ...resume]);
    expect(followTrace(model, trace)).toMatchObject({ isBehaviour: false, at: 13 });
  });

  test("receives what the root read before etcd was compacted", () => {
    const compacted: Step = { step: "compact", revision: 3 };
    const [list, ...others] = resume;
    const trace = traceOf(["root 0"], [...begin, ...restart, list as Step, compacted, ...others]);
    expect(followTrace(model, trace)).toMatchObject({ isBehaviour: true });
  });
});

test("A relay receives a revision from whichever root has it, and none that no root has", () => {
  const begin = ["root 0", "root 1", "relay 1.0"].map((server) => follows(server, 1));
  const [later, received] = [applies("root 1", 2), applies("relay 1.0", 2)];
  const known = traceOf(["root 0", "root 1"], [...begin, commits(2), later, received]);
  expect(followTrace(model, known)).toMatchObject({ isBehaviour: true });
  const unknown = traceOf(["root 0", "root 1"], [...begin, commits(2), received]);
  expect(followTrace(model, unknown)).toMatchObject({ isBehaviour: false, at: 4 });
});
