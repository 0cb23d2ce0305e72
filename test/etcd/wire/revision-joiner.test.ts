import { expect, test } from "vitest";
import { decodeWatch } from "../../../src/etcd/wire/watch-response.ts";
import { RevisionJoiner } from "../../../src/etcd/wire/whole-revisions.ts";
import { encode } from "../../foreign/protobuf.ts";
import fc from "../../property.ts";

test("One revision of etcd in fragments is put together up to a bound", () => {
  const eventOf = (revision: number): Buffer => encode({ 2: encode({ 1: "k", 3: revision }) });
  const responseOf = (...revisions: number[]): Buffer =>
    encode({ 1: encode({ 3: 9 }), 2: 7, 7: true, 11: revisions.map(eventOf) });
  const joiner = new RevisionJoiner(60);
  expect(joiner.add(responseOf(1, 1), true)).toBeUndefined();
  const whole = joiner.add(responseOf(1, 2, 3), true);
  const events = [1, 1, 1, 2].map(eventOf);
  expect(whole).toEqual({ message: encode({ 1: encode({ 3: 9 }), 11: events }), lastEvent: 2 });
  expect(joiner.add(responseOf(3), false)?.lastEvent).toBe(3);
  expect(joiner.add(responseOf(4, 4, 4), true)).toBeUndefined();
  expect(() => joiner.add(responseOf(4, 4, 4, 4), true)).toThrow("more than 60 bytes");
});

test("Fragments become responses of whole revisions, with all events in their order", () => {
  const event = (revision: number, i: number): Buffer =>
    encode({ 2: encode({ 1: `key ${i}`, 3: revision }) });
  const steps = fc.array(fc.record({ isNext: fc.boolean(), endsFragment: fc.boolean() }));
  fc.assert(
    fc.property(steps, (all) => {
      const joiner = new RevisionJoiner();
      const joined: string[] = [];
      const expected: string[] = [];
      let revision = 1;
      let fragment: Buffer[] = [];
      let lastEvent = 0;
      const end = (isFragment: boolean): void => {
        const message = encode({ 1: encode({ 3: 99 }), 7: isFragment, 11: fragment });
        fragment = [];
        const whole = joiner.add(message, isFragment);
        if (whole === undefined) return;
        const { events, revision: ofHeader } = decodeWatch(whole.message);
        expect(ofHeader).toBe(99);
        const keys = Array.from({ length: events.length }, (_, i) => events.at(i)?.kv);
        // No revision is in two responses.
        expect(keys[0]?.modRevision).toBeGreaterThan(lastEvent);
        lastEvent = whole.lastEvent;
        expect(keys.at(-1)?.modRevision).toBe(lastEvent);
        for (const kv of keys) joined.push(`${kv?.modRevision} ${kv?.key}`);
      };
      for (const [i, { isNext, endsFragment }] of all.entries()) {
        if (isNext) revision++;
        expected.push(`${revision} key ${i}`);
        fragment.push(event(revision, i));
        if (endsFragment) end(true);
      }
      end(false);
      expect(joined).toEqual(expected);
    }),
  );
});
