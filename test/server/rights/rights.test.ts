import { describe, expect, test } from "vitest";
import type { WatchFanoutError } from "../../../src/base/errors.ts";
import { encodePageToken } from "../../../src/server/services/page-token.ts";
import { listIdentity } from "../../../src/server/services/parse-requests.ts";
import type { ListRequest__Output } from "../../../src/wire/generated/watchfanout/v1/ListRequest.ts";
import { healthService } from "../../../src/wire/services.ts";
import type { TestClient } from "../test-client.ts";
import { clientAs } from "./callers.ts";
import { serveGuarded } from "./guarded.ts";

const policy = `
roles:
  - name: app
    rules:
      - { resources: [pods], prefixes: ["a/"], verbs: [get, list, watch, put, delete] }
      - { resources: [pods], keys: [motd], verbs: [get, watch] }
  - name: dropper
    rules: [{ resources: [pods], prefixes: ["drop/"], verbs: [put] }]
  - name: admin
    rules: [{ resources: ["*"], prefixes: ["*"], verbs: ["*"] }]
bindings:
  - { role: app, subjects: [app] }
  - { role: dropper, subjects: [dropper] }
  - { role: admin, subjects: ["group:admins"] }
`;

/** The reason of the error that the call ends with; "OK" without one. */
async function outcome(call: Promise<unknown>): Promise<string> {
  try {
    await call;
    return "OK";
  } catch (error) {
    return (error as WatchFanoutError).reason;
  }
}

const watchOutcome = async (client: TestClient, scope: object): Promise<string> => {
  const watch = client.watch({ resource: "pods", ...scope });
  const first = await Promise.race([watch.next().then(() => "OK"), watch.ended]);
  watch.cancel();
  return typeof first === "string" ? first : first.reason;
};

describe("A caller", () => {
  test.each<readonly [string, string, string]>([
    ["get", "a/1", "OK"],
    ["get", "motd", "OK"],
    ["get", "b/1", "PERMISSION_DENIED"],
    ["get", "a", "PERMISSION_DENIED"],
    ["get", "", "PERMISSION_DENIED"],
    ["history", "a/1", "OK"],
    ["history", "a/absent", "OK"],
    ["history", "motd", "OK"],
    ["history", "b/1", "PERMISSION_DENIED"],
    ["history", "b/absent", "PERMISSION_DENIED"],
    ["history", "", "PERMISSION_DENIED"],
    ["list", "a/", "OK"],
    ["list", "a/1", "OK"],
    ["list", "a", "PERMISSION_DENIED"],
    ["list", "", "PERMISSION_DENIED"],
    ["list", "motd", "PERMISSION_DENIED"],
    ["put", "a/2", "OK"],
    ["put", "motd", "PERMISSION_DENIED"],
    ["delete", "a/1", "OK"],
    ["delete", "b/1", "PERMISSION_DENIED"],
    ["watch a prefix", "a/", "OK"],
    ["watch a prefix", "", "PERMISSION_DENIED"],
    ["watch a prefix", "motd", "PERMISSION_DENIED"],
    ["watch a key", "motd", "OK"],
    ["watch a key", "b/1", "PERMISSION_DENIED"],
  ])("that may use some keys gets for %s %j: %s", async (verb, text, expected) => {
    const { server, put } = await serveGuarded(policy);
    for (const key of ["a", "a/1", "motd", "b/1"]) await put("pods", key);
    const client = clientAs(server, "app");
    const resource = "pods";
    const calls: Record<string, () => Promise<string>> = {
      get: () => outcome(client.get({ resource, key: text })),
      history: () => outcome(client.history({ resource, key: text })),
      list: () => outcome(client.list({ resource, prefix: text })),
      put: () => outcome(client.put({ resource, key: text })),
      delete: () => outcome(client.delete({ resource, key: text })),
      "watch a prefix": () => watchOutcome(client, { prefix: text }),
      "watch a key": () => watchOutcome(client, { key: text }),
    };
    expect(await calls[verb]?.()).toBe(expected);
  });

  test.each<readonly [string, string, string, string]>([
    ["", "a/", "a0", "OK"],
    ["", "a/1", "a/3", "OK"],
    ["a/", "", "a/2", "OK"],
    ["a/", "a/1", "", "OK"],
    ["a/", "0", "z", "OK"],
    ["", "a/", "", "PERMISSION_DENIED"],
    ["", "a/", "a0\0", "PERMISSION_DENIED"],
    ["", "a", "a0", "PERMISSION_DENIED"],
    ["", "", "a0", "PERMISSION_DENIED"],
    ["", "a/2", "b/1", "PERMISSION_DENIED"],
    ["", "b/", "b0", "PERMISSION_DENIED"],
    ["", "motd", "motd\0", "PERMISSION_DENIED"],
  ])(
    "that may use some keys lists the prefix %j from %j up to %j: %s",
    async (prefix, start_key, end_key, expected) => {
      const { server, put } = await serveGuarded(policy);
      for (const key of ["a", "a/1", "a/2", "a0", "motd", "b/1"]) await put("pods", key);
      const client = clientAs(server, "app");
      const range = { start_key, end_key };
      for (const given of [
        ...[{}, { view: "VIEW_COUNT" }, { page_size: 1 }],
        { order: "ORDER_MOD_REVISION_DESCENDING" },
      ] as const) {
        const request = { resource: "pods", prefix, ...range, ...given };
        expect(await outcome(client.list(request))).toBe(expected);
      }
      if (prefix !== "") return;
      const mayWatch = start_key === "motd" ? "OK" : expected;
      expect(await watchOutcome(client, { range })).toBe(mayWatch);
    },
  );

  test("that makes a page token learns nothing of the place of objects that it may not read", async () => {
    const { server, put } = await serveGuarded(policy);
    for (const key of ["a/1", "b/1", "a/2"]) await put("pods", key);
    const client = clientAs(server, "app");
    const order = "ORDER_MOD_REVISION_ASCENDING";
    const request = { resource: "pods", prefix: "a/", page_size: 1, order } as const;
    const { revision, history_id: historyId } = await client.list(request);
    const complete: ListRequest__Output = {
      ...{ ...request, label_selector: "", field_selector: "", history_id: "" },
      ...{
        revision_match: "REVISION_MATCH_UNSPECIFIED",
        revision: "0",
        page_token: "",
        read_mask: null,
      },
      ...{ view: "VIEW_UNSPECIFIED", shard: null, start_key: "", end_key: "" },
    };
    const pageAfter = (startAfter: string) => {
      const position = { revision: Number(revision), historyId, startAfter };
      return client.list({
        ...request,
        page_token: encodePageToken(position, listIdentity(complete)),
      });
    };
    expect((await pageAfter("a/1")).items.map(({ key }) => key)).toEqual(["a/2"]);
    // One that exists, and one that does not.
    const refusals = [];
    for (const key of ["b/1", "b/2"])
      refusals.push(await pageAfter(key).catch((error: Error) => error));
    const [one, other] = refusals.map((error) =>
      error instanceof Error ? error.message.replace(/b\/\d/, "") : "",
    );
    expect(one).toMatch(/^The list has no object/);
    expect(other).toBe(one);
  });

  test("without a credential, or without a binding, is denied everything", async () => {
    const { server } = await serveGuarded(policy);
    for (const client of [clientAs(server, "stranger"), clientAs(server, "dropper")]) {
      expect(await outcome(client.list({ resource: "pods" }))).toBe("PERMISSION_DENIED");
    }
  });

  test("that may only put does not read what it has put", async () => {
    const { server } = await serveGuarded(policy);
    const client = clientAs(server, "dropper");
    const { object } = await client.put({ resource: "pods", key: "drop/1", value: Buffer.of(1) });
    expect(object?.key).toBe("drop/1");
    expect(await outcome(client.get({ resource: "pods", key: "drop/1" }))).toBe(
      "PERMISSION_DENIED",
    );
  });

  test("with every right may do everything", async () => {
    const { server, put } = await serveGuarded(policy);
    await put("secrets", "s");
    const client = clientAs(server, "ann", "admins");
    expect((await client.list({ resource: "secrets" })).items).toHaveLength(1);
    expect(await watchOutcome(client, {})).toBe("OK");
  });
});

describe("A denial", () => {
  test("names verb, resource and scope, and is the same whether or not anything exists there", async () => {
    const { server, put } = await serveGuarded(policy);
    await put("pods", "b/1", "secret");
    const client = clientAs(server, "app");
    const errorOf = async (resource: string, key: string): Promise<unknown> => {
      const error = await client.get({ resource, key }).catch((thrown: unknown) => thrown);
      const { message, metadata } = error as WatchFanoutError;
      return {
        message: message.replaceAll(resource, "RESOURCE").replaceAll(key, "KEY"),
        metadata: { ...metadata, resource: "RESOURCE", key: "KEY" },
      };
    };
    const expected = {
      message:
        '"app" may not get the key "KEY" of the resource "RESOURCE". Request only what the policy allows, or ask ' +
        "the operator of the service for a role that allows this.",
      metadata: { verb: "get", resource: "RESOURCE", key: "KEY" },
    };
    expect(await errorOf("pods", "b/1")).toEqual(expected);
    expect(await errorOf("pods", "b/2")).toEqual(expected);
    // A resource without any right, and one that does not exist.
    expect(await errorOf("secrets", "a/1")).toEqual(expected);
    expect(await errorOf("nothing", "a/1")).toEqual(expected);
  });

  test("comes before any other problem of the request", async () => {
    const { server } = await serveGuarded(policy);
    const client = clientAs(server, "app");
    const resource = "pods";
    const list = client.list({ resource, label_selector: "((", page_token: "nonsense" });
    expect(await outcome(list)).toBe("PERMISSION_DENIED");
    expect(await outcome(client.put({ resource, key: "b", expected_mod_revision: -1 }))).toBe(
      "PERMISSION_DENIED",
    );
    expect(await outcome(client.delete({ resource, key: "" }))).toBe("PERMISSION_DENIED");
  });

  test("is counted by verb", async () => {
    const { server, authorizer } = await serveGuarded(policy);
    const client = clientAs(server, "stranger");
    for (let i = 0; i < 3; i++) await outcome(client.list({ resource: "pods" }));
    await watchOutcome(client, {});
    expect(authorizer.denied).toEqual({ get: 0, list: 3, watch: 1, put: 0, delete: 0 });
  });
});

test("The error for an unknown resource lists only resources that its caller may know.", async () => {
  const { server } = await serveGuarded(`
roles:
  - name: future
    rules: [{ resources: [pods, later], prefixes: ["*"], verbs: [get] }]
bindings: [{ role: future, subjects: [app] }]
`);
  const get = clientAs(server, "app").get({ resource: "later", key: "a" });
  await expect(get).rejects.toThrow('There is no resource "later". The resources are: "pods".');
});

describe("A page token", () => {
  test("of another caller continues only a list that the caller itself may make", async () => {
    const { server, put } = await serveGuarded(policy);
    for (const key of ["a/1", "a/2", "b/1", "b/2"]) await put("pods", key);
    const admin = clientAs(server, "ann", "admins");
    const app = clientAs(server, "app");
    const all = await admin.list({ resource: "pods", page_size: 1 });
    const page_token = all.next_page_token;
    expect(await outcome(app.list({ resource: "pods", page_token }))).toBe("PERMISSION_DENIED");
    expect(await outcome(app.list({ resource: "pods", prefix: "a/", page_token }))).toBe(
      "INVALID_REQUEST",
    );
    const own = await admin.list({ resource: "pods", prefix: "a/", page_size: 1 });
    const rest = await app.list({
      ...{ resource: "pods", prefix: "a/", page_token: own.next_page_token },
    });
    expect(rest.items.map(({ key }) => key)).toEqual(["a/2"]);
  });
});

describe("Health", () => {
  const { Check, List, Watch } = healthService;

  test("of a resource without any right is that of an unknown service", async () => {
    const { server } = await serveGuarded(policy);
    const app = clientAs(server, "app");
    const check = (service: string): Promise<string> =>
      app.unary(Check, { service }).then(
        ({ status }) => status,
        ({ cause }: WatchFanoutError) => (cause as { details: string }).details,
      );
    expect(await check("resource/pods")).toBe("SERVING");
    expect(await check("")).toBe("SERVING");
    expect(await check("watchfanout.v1.ListWatchService")).toBe("SERVING");
    expect(await check("resource/secrets")).toBe(await check("resource/nothing"));
    const names = Object.keys((await app.unary(List, {})).statuses).sort();
    const services = ["Lease", "ListWatch", "Write"].map((name) => `watchfanout.v1.${name}Service`);
    expect(names).toEqual(["", "resource/pods", ...services]);
    const admin = clientAs(server, "ann", "admins");
    expect(Object.keys((await admin.unary(List, {})).statuses)).toContain("resource/secrets");
    // What is encoded for one caller is not sent to another.
    expect(Object.keys((await app.unary(List, {})).statuses)).not.toContain("resource/secrets");
  });

  test("becomes unknown for a watch whose caller loses the last right, and known with a new one", async () => {
    const { server, change } = await serveGuarded(policy);
    const app = clientAs(server, "app");
    const lost = app.stream(Watch, { service: "resource/pods" });
    const gained = app.stream(Watch, { service: "resource/secrets" });
    expect((await lost.next()).status).toBe("SERVING");
    expect((await gained.next()).status).toBe("SERVICE_UNKNOWN");
    change(
      policy
        .replace("[pods], prefixes", "[secrets], prefixes")
        .replace("[pods], keys", "[x], keys"),
    );
    expect((await lost.next()).status).toBe("SERVICE_UNKNOWN");
    expect((await gained.next()).status).toBe("SERVING");
    lost.cancel();
    gained.cancel();
  });
});
