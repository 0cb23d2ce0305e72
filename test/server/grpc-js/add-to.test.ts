import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, credentials, Server, ServerCredentials, status } from "@grpc/grpc-js";
import { pino } from "pino";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { Authenticators } from "../../../src/identity/authenticators.ts";
import { addTo } from "../../../src/server/grpc-js/add-to.ts";
import type { AuditEntry } from "../../../src/server/server.ts";
import { healthService, listWatchService, reflectionServices } from "../../../src/wire/services.ts";
import {
  authority,
  describeAuthentication,
  headers,
  serverCertificate,
} from "../authenticated-calls.ts";
import { framed, RawConnection } from "../http2/raw-connection.ts";
import { ManualTimers } from "../limits/manual-timers.ts";
import { serveAdded, serveThingsBy } from "../served.ts";
import { TestClient } from "../test-client.ts";
import { describeWatchCalls } from "../watch-calls.ts";

const resource = "things";
const { List, Watch: ListWatch } = listWatchService;
const { Check, Watch } = healthService;
const { ServerReflectionInfo: Reflection } = reflectionServices[0] ?? {};

const serveThings = (options: Parameters<typeof serveThingsBy>[1] = {}, bindTo?: string) =>
  serveThingsBy((resources, clock, given) => serveAdded(resources, clock, given, bindTo), options);

describeWatchCalls("by a server of grpc-js", () => serveThings());
describeAuthentication("by a server of grpc-js", serveAdded);

describe("A service that was added to a server of grpc-js", () => {
  test("serves reads, health and reflection, and reports its calls", async () => {
    const { client, server, storage, recorder } = await serveThings();
    await storage.put({ key: "a", value: Buffer.from("1") });
    expect((await client.list({ resource })).items).toHaveLength(1);
    expect(await client.unary(Check, { service: "" })).toEqual({ status: "SERVING" });
    const watch = client.stream(Watch, { service: "" });
    expect(await watch.next()).toEqual({ status: "SERVING" });
    watch.cancel();
    const call = new RawConnection(server.port).open(Reflection?.path ?? "");
    call.stream.end(framed(Reflection?.requestSerialize({ list_services: "" }) ?? Buffer.of()));
    const answers = call.messages();
    const { value } = await answers.next();
    const answer = Reflection?.responseDeserialize(value);
    expect(answer?.list_services_response?.service).toHaveLength(5);
    await expect(answers.next()).rejects.toThrow("ended");
    expect((await call.ended).code).toBe(status.OK);
    await recorder.untilEnded(4);
    expect(recorder.calls.map(({ code }) => code).toSorted()).toEqual([
      ...["CANCELLED", "OK", "OK", "OK"],
    ]);
  });

  test("bounds unaccepted responses as well, and releases accepted ones", async () => {
    const { client, server, storage, cacher } = await serveThings();
    await storage.put({ key: "a", value: Buffer.alloc(1_000_000) });
    const raw = new RawConnection(server.port, 0);
    const request = List.requestSerialize({ resource });
    const calls = Array.from({ length: 10 }, () => raw.call(List.path, request));
    await client.list({ resource });
    raw.session.settings({ initialWindowSize: 100_000 });
    for (const { code } of await Promise.all(calls.map((call) => call.drain().ended))) {
      expect(code).toBe(status.OK);
    }
    expect(cacher.revision).toBe(2);
  });

  test("ends its streams with DRAINING when it is drained", async () => {
    const { client, cacher } = await serveThings();
    const watch = client.watch({ resource });
    await watch.next();
    cacher.drain();
    expect(await watch.ended).toMatchObject({
      reason: "DRAINING",
      metadata: { resume_revision: "1" },
    });
  });

  test("releases a call that grpc-js has ended before its request was complete", async () => {
    const { server, recorder } = await serveThings();
    const connection = new RawConnection(server.port);
    await once(connection.session, "connect");
    const roundTrip = () => new Promise((resolve) => connection.session.ping(resolve));
    const call = connection.open(List.path);
    call.stream.write(framed(List.requestSerialize({ resource })));
    await roundTrip();
    // The prefix of a second message, which is too large.
    call.stream.write(Buffer.from("00ffffffff", "hex"));
    // Its client closes its side only behind the status.
    expect((await call.drain().ended).code).toBe(status.RESOURCE_EXHAUSTED);
    await roundTrip();
    expect(recorder.open).toBe(0);
  });

  test.each([
    ["no request", [], /^Received no request message/],
    ["two requests", [{ resource }, { resource }], /^Received a second request message/],
  ])("refuses a call with %s", async (_name, requests, message) => {
    const { server } = await serveThings();
    const call = new RawConnection(server.port).open(List.path);
    call.stream.end(Buffer.concat(requests.map((each) => framed(List.requestSerialize(each)))));
    expect(await call.drain().ended).toMatchObject({
      code: status.UNIMPLEMENTED,
      message: expect.stringMatching(message),
    });
  });

  test("trusts no client without an address to forward certificates", async () => {
    const authenticators = new Authenticators({
      ...{ certificateNames: ["spiffe"], now: Date.now },
      trustedForwarders: { loopback: false, unix: true, names: new Set() },
    });
    const authenticate = vi.spyOn(authenticators, "authenticate");
    const folder = mkdtempSync(join(tmpdir(), "add-to-"));
    const address = `unix:${join(folder, "socket")}`;
    const server = new Server();
    const logger = pino({ level: "silent" });
    const added = addTo(server, {
      ...{ resources: new Map(), clock: new ManualTimers(), logger, authenticators },
    });
    const client = new Client(address, credentials.createInsecure());
    onTestFinished(() => {
      client.close();
      added.drain();
      server.forceShutdown();
      rmSync(folder, { recursive: true });
    });
    await new Promise<void>((resolve, reject) => {
      const insecure = ServerCredentials.createInsecure();
      server.bindAsync(address, insecure, (error) => (error === null ? resolve() : reject(error)));
    });
    const { metadata } = headers({ "x-forwarded-client-cert": "URI=spiffe://corp/a" });
    const { path, requestSerialize, responseDeserialize } = Check;
    const response = await new Promise((resolve, reject) => {
      const request = { service: "" };
      client.makeUnaryRequest(
        ...([path, requestSerialize, responseDeserialize, request, metadata] as const),
        (error, value) => (error === null ? resolve(value) : reject(error)),
      );
    });
    expect(response).toEqual({ status: "SERVING" });
    expect(authenticate.mock.results).toMatchObject([{ value: { source: "none" } }]);
  });

  test("reports and audits a call whose deadline has passed as such", async () => {
    const codes: (string | undefined)[] = [];
    const audit = {
      level: "reads",
      record: ({ code }: AuditEntry) => void codes.push(code),
    } as const;
    const { server, cacher, recorder } = await serveThings({ server: { audit } });
    cacher.list = () => new Promise(() => {});
    const request = List.requestSerialize({ resource });
    // A client that does not cancel at its deadline, so that the server ends the call.
    const call = new RawConnection(server.port).call(List.path, request, {
      "grpc-timeout": "500m",
    });
    expect((await call.drain().ended).code).toBe(status.DEADLINE_EXCEEDED);
    await recorder.untilEnded(1);
    expect(recorder.calls).toMatchObject([{ code: "DEADLINE_EXCEEDED" }]);
    expect(codes).toEqual(["DEADLINE_EXCEEDED"]);
  });

  test("counts the anonymous clients of a host as one caller, also on an address for IPv4 and IPv6", async () => {
    const audited: AuditEntry[] = [];
    const { client, server } = await serveThings(
      {
        server: {
          audit: { level: "reads", record: (entry) => void audited.push(entry) },
          limits: { maxStreamsPerIdentity: 1 },
        },
      },
      "[::]:0",
    );
    const watch = client.watch({ resource });
    await watch.next();
    const another = new RawConnection(server.port);
    const refused = another.call(ListWatch.path, ListWatch.requestSerialize({ resource }));
    expect(await refused.drain().ended).toMatchObject({
      code: status.RESOURCE_EXHAUSTED,
      message: expect.stringContaining("has 1 streams open"),
    });
    for (const { address } of audited) expect(address).toMatch(/^\[[0-9a-f:.]+\]:\d+$/);
    watch.cancel();
  });

  test("recognises each client of a Unix socket by its own certificate", async () => {
    const folder = mkdtempSync(join(tmpdir(), "add-to-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const socket = `unix:${join(folder, "socket")}`;
    const names: string[] = [];
    await serveThings(
      {
        server: {
          authenticators: new Authenticators({ certificateNames: ["cn"], now: Date.now }),
          tls: { ...serverCertificate, clientCa: authority.cert, clientAuth: "require" },
          audit: { level: "reads", record: ({ identity }) => void names.push(identity.name) },
        },
      },
      socket,
    );
    for (const cn of ["alice", "bob"]) {
      const { cert, key } = await authority.issue({ cn });
      const channel = credentials.createSsl(authority.cert, key, cert);
      // Own pools, so that clients do not share a connection.
      const client = new Client(socket, channel, { "grpc.use_local_subchannel_pool": 1 });
      onTestFinished(() => client.close());
      await new TestClient(client).watch({ resource }).next();
    }
    expect(names).toEqual(["alice", "bob"]);
  });
});
