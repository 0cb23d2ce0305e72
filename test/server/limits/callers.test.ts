import { describe, expect, test } from "vitest";
import { anonymous } from "../../../src/identity/identity.ts";
import { Callers, hostOf } from "../../../src/server/limits/callers.ts";
import { FakeClock } from "../../fake-clock.ts";
import { named } from "./test-callers.ts";

const noRates = {
  ...{ maxWatchRatePerIdentity: 0, maxSendRatePerIdentity: 0 },
  ...{ maxLeaseGrantRatePerIdentity: 0, maxLeaseRenewalRatePerIdentity: 0 },
};
const address = "10.0.0.1:5000";

function call(connection: object, identity = anonymous, from = address) {
  return { connection, identity, address: from };
}

function connected(callers: Callers, from = "10.0.0.1"): object {
  const connection = {};
  callers.connected(connection, from);
  return connection;
}

describe("A call belongs to", () => {
  test("its identity, on whatever connection", () => {
    const callers = new Callers(new FakeClock(), noRates);
    const [first, second] = [connected(callers), connected(callers, "10.0.0.2")];
    const owner = callers.ownerOf(call(first, named("alice")));
    const other = callers.ownerOf(call(second, named("alice")));
    expect(other).not.toBe(owner);
    expect(other.caller).toBe(owner.caller);
    expect(callers.ownerOf(call(first, named("alice")))).toBe(owner);
    expect(callers.ownerOf(call(first, named("bob"))).caller).not.toBe(owner.caller);
    expect(owner.caller.title).toBe('the identity "alice"');
  });

  test("its host, if it is anonymous: others have their own share", () => {
    const callers = new Callers(new FakeClock(), noRates);
    const [first, second] = [connected(callers), connected(callers)];
    const { caller } = callers.ownerOf(call(first));
    expect(callers.ownerOf(call(second)).caller).toBe(caller);
    expect(callers.ownerOf(call(connected(callers, "10.0.0.2"))).caller).not.toBe(caller);
    expect(caller.title).toBe("anonymous at 10.0.0.1");
    // As on a Unix socket.
    const local = callers.ownerOf(call({}, anonymous, "")).caller;
    expect(local).not.toBe(caller);
    expect(local.title).toBe("anonymous without an address");
    // A name can't be that of a host.
    expect(callers.ownerOf(call(first, named("10.0.0.1"))).caller).not.toBe(caller);
  });
});

test.each([
  ["10.0.0.1", "10.0.0.1"],
  ["10.0.0.1:123", "10.0.0.1"],
  ["::ffff:10.0.0.1", "10.0.0.1"],
  ["[::ffff:10.0.0.1]:123", "10.0.0.1"],
  ["2001:db8:0:1:aaaa::1", "2001:db8:0:1::/64"],
  ["[2001:DB8::1]:123", "2001:db8:0:0::/64"],
  ["2001:db8:0:1::ffff", "2001:db8:0:1::/64"],
  ["fe80::1%eth0", "fe80:0:0:0::/64"],
  ["::1", "0:0:0:0::/64"],
  ["", ""],
])("The host of %j is %j", (text, host) => {
  expect(hostOf(text)).toBe(host);
});

describe("Before a call is authenticated, a connection belongs to", () => {
  test("its host, and after its first call to that call's identity", () => {
    const callers = new Callers(new FakeClock(), noRates);
    const connection = connected(callers);
    expect(callers.expectedOn(connection).caller.title).toBe("anonymous at 10.0.0.1");
    const alice = callers.ownerOf(call(connection, named("alice")));
    callers.count(alice);
    expect(callers.expectedOn(connection)).toBe(alice);
  });

  test("its host, if several identities use it, such as those behind a proxy", () => {
    const callers = new Callers(new FakeClock(), noRates);
    const connection = connected(callers);
    callers.count(callers.ownerOf(call(connection, named("alice"))));
    callers.ownerOf(call(connection, named("bob")));
    expect(callers.expectedOn(connection).caller.title).toBe("anonymous at 10.0.0.1");
  });
});

test("A connection counts for the identity of its first call until it is closed", () => {
  const callers = new Callers(new FakeClock(), noRates);
  const connection = connected(callers);
  const alice = callers.ownerOf(call(connection, named("alice")));
  callers.count(alice);
  const bob = callers.ownerOf(call(connection, named("bob")));
  expect(callers.isCounted(bob)).toBe(true);
  callers.count(bob);
  expect([alice.caller.connections, bob.caller.connections]).toEqual([1, 0]);
  expect(callers.hasSeveral).toBe(false);
  callers.count(callers.ownerOf(call(connected(callers), named("bob"))));
  expect(callers.hasSeveral).toBe(true);
  callers.closed(connection);
  callers.closed(connection);
  expect(alice.caller.connections).toBe(0);
  expect(callers.hasSeveral).toBe(false);
});

test("A connection of a trusted proxy counts for none of the identities on it, which are several callers", () => {
  const callers = new Callers(new FakeClock(), noRates);
  const proxy = connected(callers);
  callers.markForwarder(proxy);
  const alice = callers.forwardedOwner(proxy, "alice");
  expect(callers.isCounted(alice)).toBe(true);
  callers.count(alice);
  expect(callers.hasSeveral).toBe(false);
  const bob = callers.forwardedOwner(proxy, "bob");
  expect(callers.forwardedOwner(proxy, "alice")).toBe(alice);
  expect([alice.caller.connections, bob.caller.connections]).toEqual([0, 0]);
  expect(callers.hasSeveral).toBe(true);
  // Of other calls it is not known whose they are.
  expect(callers.expectedOn(proxy).caller.title).toBe("anonymous at 10.0.0.1");
  callers.closed(proxy);
  callers.closed(proxy);
  expect(callers.hasSeveral).toBe(false);
});

test("Of callers that have nothing a bounded number is remembered, and those in use are kept", () => {
  const callers = new Callers(new FakeClock(), noRates, 10);
  const used = callers.ownerOf(call({}, named("used"))).caller;
  used.streams = 1;
  for (let i = 0; i < 100; i++) callers.ownerOf(call({}, named(`idle ${i}`)));
  expect(callers.size).toBe(10);
  expect(callers.ownerOf(call({}, named("used"))).caller).toBe(used);
});

test("A caller that has used up its rate is not forgotten before it has it again", () => {
  const clock = new FakeClock();
  const callers = new Callers(clock, { ...noRates, maxWatchRatePerIdentity: 1 }, 1);
  const fast = callers.ownerOf(call({}, named("fast"))).caller;
  expect([fast.watchRate?.take(), fast.watchRate?.take()]).toEqual([true, false]);
  callers.ownerOf(call({}, named("other")));
  expect(callers.ownerOf(call({}, named("fast"))).caller).toBe(fast);
  clock.advance(1_000);
  callers.ownerOf(call({}, named("another")));
  expect(fast.isInUse).toBe(false);
});
