import { describe, expect, it } from "vitest";
import { upstreamUnavailable, WatchFanoutError } from "../../../src/base/errors.ts";
import { WatchWarnings } from "../../../src/client/informer/handlers/informer-errors.ts";

/** The warnings for a sequence of failures: the message, and the revision of the watch. */
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

describe("An informer without a listener for failures warns", () => {
  it.each<[string, Parameters<typeof saidOf>[0], readonly string[]]>([
    ["not of an interruption, if the watch continues", [["Gone.", 5]], []],
    [
      "not of interruptions, at any number",
      [
        ["Gone.", 5],
        ["Gone.", 6],
        ["Gone.", 9],
      ],
      [],
    ],
    [
      "not of a relist",
      [
        ["Gone.", 5],
        ["Too old.", 5],
        ["Gone.", 9],
      ],
      [],
    ],
    [
      "once of a watch that does not continue",
      [["Gone.", 5], ...times(9, "No response.", 5)],
      ["No response."],
    ],
    ["once of a list that fails", times(9, "No such resource.", undefined), ["No such resource."]],
    [
      "of another reason for that",
      [...times(3, "No response.", undefined), ...times(3, "No such resource.", undefined)],
      ["No response.", "No such resource."],
    ],
    [
      "of the same reason again after success",
      [...times(3, "No response.", 5), ...times(3, "No response.", 7)],
      ["No response.", "No response."],
    ],
  ])("%s", (_what, failures, said) => {
    expect(saidOf(failures)).toEqual(said);
  });

  it("not of a server that drains, as each does at the maximum age of its streams", () => {
    const warnings = new WatchWarnings("pods", (message) => expect.fail(message));
    const error = new WatchFanoutError("DRAINING", "The stream has reached its maximum age.");
    for (let i = 0; i < 9; i++) {
      warnings.failed({ error, revision: 5, next: "resume", pauseMs: 1 });
    }
  });
});
