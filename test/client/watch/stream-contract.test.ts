import { describe, expect, test } from "vitest";
import { StreamContract } from "../../../src/client/watch/response-checks.ts";
import { WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import type { WatchRequest } from "../../../src/wire/generated/watchfanout/v1/WatchRequest.ts";

/** A batch with an event for each key and revision. */
function batch(
  revision: number,
  events: readonly (readonly [key: string, modRevision: number])[] = [],
  more: { readonly initial?: boolean; readonly historyId?: string } = {},
) {
  return {
    revision,
    events: events.map(
      ([key, modRevision]) =>
        new WatchEvent(
          "MODIFIED",
          new StoredObject(key, Buffer.of(), 1, modRevision, 1, 0n),
          undefined,
        ),
    ),
    ...{ initial: false, historyId: "", ...more },
  };
}

const contract = (request: Omit<WatchRequest, "resource"> = {}) =>
  new StreamContract({ resource: "r", ...request });

describe("A server", () => {
  test("may send bookmarks at the same revision, events after it, and initial events of any revision before.", () => {
    const stream = contract({ after_revision: 3, send_initial_events: true, prefix: "p/" });
    stream.check(batch(3));
    stream.check(
      batch(
        9,
        [
          ["p/b", 8],
          ["p/c", 2],
        ],
        { initial: true },
      ),
    );
    stream.check(batch(9));
    stream.check(
      batch(12, [
        ["p/b", 10],
        ["p/a", 10],
        ["p/b", 12],
      ]),
    );
  });

  test.each([
    ["a resume point below the requested one", 5, [batch(4)], /resume point 4 after 5/],
    ["a resume point that goes back", 5, [batch(7), batch(6)], /resume point 6 after 7/],
    ["an event that was delivered before", 5, [batch(7, [["a", 5]])], /revision 5 between 6 and 7/],
    ["an event after its resume point", 5, [batch(7, [["a", 8]])], /revision 8 between 6 and 7/],
    [
      "events that are not in order",
      5,
      [
        batch(9, [
          ["a", 8],
          ["a", 7],
        ]),
      ],
      /revision 7 between 8/,
    ],
    ["an initial state that was not requested", 5, [batch(7, [], { initial: true })], /initial/],
  ])("must not send %s.", (_, after_revision, batches, message) => {
    const stream = contract({ after_revision });
    const last = batches.at(-1);
    for (const each of batches.slice(0, -1)) stream.check(each);
    expect(() => last && stream.check(last)).toThrow(
      expect.objectContaining({ reason: "INTERNAL", message: expect.stringMatching(message) }),
    );
  });

  test("must not send the initial state twice.", () => {
    const stream = contract({ send_initial_events: true });
    stream.check(batch(7, [["a", 1]], { initial: true }));
    expect(() => stream.check(batch(8, [], { initial: true }))).toThrow(/not requested/);
  });

  test.each([
    [{ key: "a" }, "ab"],
    [{ prefix: "p/" }, "q/a"],
  ])("must not send another key to a watch of %o.", (scope, key) => {
    expect(() => contract(scope).check(batch(7, [[key, 7]]))).toThrow(
      expect.objectContaining({ reason: "INTERNAL", message: expect.stringContaining(key) }),
    );
  });

  test("of another history ends the stream with HISTORY_CHANGED.", () => {
    const changed = expect.objectContaining({
      reason: "HISTORY_CHANGED",
      metadata: { history_id: "h2" },
    });
    const resumed = contract({ after_revision: 5, history_id: "h1" });
    expect(() => resumed.check(batch(7, [], { historyId: "h2" }))).toThrow(changed);
    const begun = contract();
    begun.check(batch(7));
    begun.check(batch(7, [], { historyId: "h1" }));
    expect(() => begun.check(batch(8, [], { historyId: "h2" }))).toThrow(changed);
  });
});
