import { describe, expect, it } from "vitest";
import { upstreamUnavailable, WatchFanoutError } from "../../../src/base/errors.ts";
import { WatchWarnings } from "../../../src/client/informer/watch-warnings.ts";

/** What is said when these come one after the other: the message, and where the watch was. */
function saidOf(failures: readonly (readonly [message: string, revision: number | undefined])[]) {
  const said: string[] = [];
  const warnings = new WatchWarnings("pods", (message) => said.push(message));
  for (const [message, revision] of failures) {
    const error = upstreamUnavailable(message);
    warnings.failed({ error, revision, next: "resume", pauseMs: 1 });
  }
  return said.map((message) =>
    message.replace(`The informer "pods" can't list or watch, and keeps trying: `, ""),
  );
}

function times(count: number, message: string, revision: number | undefined) {
  return Array.from({ length: count }, (): [string, number | undefined] => [message, revision]);
}

describe("What an informer warns of where nobody has asked to be told", () => {
  it.each<[string, Parameters<typeof saidOf>[0], readonly string[]]>([
    ["is not that a watch breaks, if it goes on", [["Gone.", 5]], []],
    [
      "is not that, however often",
      [
        ["Gone.", 5],
        ["Gone.", 6],
        ["Gone.", 9],
      ],
      [],
    ],
    [
      "is not that it has to begin anew",
      [
        ["Gone.", 5],
        ["Too old.", 5],
        ["Gone.", 9],
      ],
      [],
    ],
    [
      "is that a watch does not go on, once",
      [["Gone.", 5], ...times(9, "No answer.", 5)],
      ["No answer."],
    ],
    [
      "is that nothing can be listed, once",
      times(9, "No such resource.", undefined),
      ["No such resource."],
    ],
    [
      "is another reason for that",
      [...times(3, "No answer.", undefined), ...times(3, "No such resource.", undefined)],
      ["No answer.", "No such resource."],
    ],
    [
      "is the same again after it went well",
      [...times(3, "No answer.", 5), ...times(3, "No answer.", 7)],
      ["No answer.", "No answer."],
    ],
  ])("%s", (_what, failures, said) => {
    expect(saidOf(failures)).toEqual(said);
  });

  it("is not that a server goes away in order, which each does by its stream's maximum age", () => {
    const warnings = new WatchWarnings("pods", (message) => expect.fail(message));
    const error = new WatchFanoutError("DRAINING", "The stream has reached its maximum age.");
    for (let i = 0; i < 9; i++) {
      warnings.failed({ error, revision: 5, next: "resume", pauseMs: 1 });
    }
  });
});
