import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { yamlText } from "../../../src/cli/client/decoded/yaml.ts";
import { convert } from "../../codec/fixtures.ts";
import fc, { runs } from "../../property.ts";
import { Terminal } from "./client-terminal.ts";
import { ServedCodecs } from "./served-codecs.ts";

let served: ServedCodecs;

/** More digits than a number has. */
const serial = "12345678901234567890";

beforeAll(async () => {
  served = await ServedCodecs.start();
  const { client } = served;
  const pod = (node: string): Buffer =>
    Buffer.from(
      `{"spec":{"node":"${node}","foo-bar":1},"labels":{"a.b/c":"x"},"serial":${serial}}`,
    );
  await client.put("pods", "ns-1/a", pod("n1"));
  await client.put("pods", "ns-1/b", pod("n2"));
  const lease = { metadata: { name: "one" }, spec: { phase: "PHASE_LOST" }, payload: "AAE=" };
  await client.put("leases", "one", convert("acme.v1.Lease", lease));
  await client.put("blobs", "json", Buffer.from('{"a":[1]}'));
  await client.put("blobs", "text", Buffer.from("12\u001b[2J"));
  await client.put("blobs", "bytes", Buffer.of(0xff, 0x1b, 0x00));
});
afterAll(() => served?.[Symbol.asyncDispose]());

async function stdoutOf(...args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await served.run(args);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return stdout;
}

describe("As YAML,", () => {
  test("an object has its value decoded.", async () => {
    const text = await stdoutOf("get", "ns-1/a", "-r", "pods", "-o", "yaml");
    expect(parse(text, { intAsBigInt: true })).toEqual({
      key: "ns-1/a",
      create_revision: 2n,
      mod_revision: 2n,
      version: 1n,
      lease: "0",
      value: {
        spec: { node: "n1", "foo-bar": 1n },
        labels: { "a.b/c": "x" },
        serial: BigInt(serial),
      },
    });
  });

  test("a list is one document, over all pages.", async () => {
    const text = await stdoutOf("list", "-r", "pods", "--page-size", "1", "-o", "yaml");
    const { items, revision } = parse(text);
    expect(items.map(({ key }: { key: string }) => key)).toEqual(["ns-1/a", "ns-1/b"]);
    expect(revision).toBe(7);
    const none = await stdoutOf("list", "none/", "-r", "pods", "-o", "yaml");
    expect(parse(none)).toMatchObject({ revision: 7, items: [] });
  });

  test("a value without a codec is JSON, text or bytes.", async () => {
    const { items } = parse(await stdoutOf("list", "-r", "blobs", "-o", "yaml"));
    expect(items).toMatchObject([
      { key: "bytes", value_base64: "/xsA" },
      { key: "json", value: { a: [1] } },
      { key: "text", value: "12\u001b[2J" },
    ]);
  });

  test("only what was asked for is shown.", async () => {
    const keys = await stdoutOf("get", "ns-1/a", "-r", "pods", "-o", "yaml", "--keys-only");
    expect(Object.keys(parse(keys))).not.toContain("value");
    const attributes = await stdoutOf("get", "ns-1/a", "-r", "pods", "-o", "yaml", "--attributes");
    expect(parse(attributes).attributes).toEqual({ labels: {}, fields: { "spec.node": "n1" } });
  });

  test("every text is read as it was, and no line controls a terminal.", () => {
    fc.assert(
      fc.property(fc.dictionary(text(), fc.jsonValue({ stringUnit: "binary" })), (document) => {
        const yaml = yamlText(document as Parameters<typeof yamlText>[0]);
        expect(yaml).not.toMatch(/[^\P{Cc}\n\t]|\p{Cf}|\p{Zl}|\p{Zp}/u);
        expect(JSON.stringify(parse(yaml))).toBe(JSON.stringify(document));
      }),
      { numRuns: runs(400) },
    );
  });
});

/** Texts that YAML could read as something else, or that a terminal could obey. */
function text() {
  const odd = ["null", "~", "1", "- a", "a: b", "#", "\u001b[2J", "\u202e", "\u{e0001}", "\r\n"];
  return fc.oneof(fc.string({ unit: "binary" }), fc.constantFrom(...odd, "\ufeff", " \n", "---"));
}

describe("Protobuf values", () => {
  test("are bytes, with a warning, without descriptors.", async () => {
    const { stdout, stderr } = await served.run(["get", "one", "-r", "leases", "-o", "yaml"]);
    expect(parse(stdout)).toHaveProperty("value_base64");
    expect(stderr).toContain("needs --descriptors and --message");
  });

  test.each(["acme.v1.Lease", "other=acme.v1.Person,leases=acme.v1.Lease"])(
    "are decoded by their descriptors: %s.",
    async (message) => {
      const decoding = ["--descriptors", served.descriptors, "--message", message];
      const text = await stdoutOf("get", "one", "-r", "leases", "-o", "yaml", ...decoding);
      expect(parse(text).value).toEqual({
        metadata: { name: "one" },
        spec: { phase: "PHASE_LOST" },
        payload: "AAE=",
      });
    },
  );

  test("that are no messages are shown as bytes.", async () => {
    const decoding = ["--descriptors", served.descriptors, "--message", "acme.v1.Lease"];
    const text = await stdoutOf("get", "bytes", "-r", "blobs", "-o", "yaml", ...decoding);
    expect(parse(text)).toMatchObject({ value_base64: "/xsA" });
  });

  test.each([
    [["--descriptors", "none"], "--descriptors can't be read"],
    [["--descriptors", "package.json"], "is not a descriptor set"],
    [[], 'has no message type "acme.v1.None"'],
  ])("need usable descriptors: %j.", async (descriptors, problem) => {
    const given = ["--descriptors", served.descriptors, ...descriptors];
    const outcome = await served.run([
      ...["get", "one", "-r", "leases", "-o", "yaml", "--message", "acme.v1.None", ...given],
    ]);
    expect(outcome).toMatchObject({ code: 2, stdout: "" });
    expect(outcome.stderr).toContain(problem);
  });
});

describe("As jsonpath,", () => {
  test.each([
    ["{.items[*].key}", "ns-1/a ns-1/b\n"],
    ['{range .items[*]}{.key}{"\\t"}{.value.spec.foo-bar}{"\\n"}{end}', "ns-1/a\t1\nns-1/b\t1\n"],
    ["{.items[0].value.labels.a\\.b/c}", "x\n"],
    ["{.items[?(@.value.spec.node=='n2')].key}", "ns-1/b\n"],
    ["$.items[-1:].value.serial", `${serial}\n`],
    ["{.items[*].value.labels}", '{"a.b/c":"x"} {"a.b/c":"x"}\n'],
    ["revision {.revision}", "revision 7\n"],
    ["{range .items[*]}{$.revision}{end}", "77\n"],
    ["{..node}", "n1 n2\n"],
    ["{.constructor}{.items.length}{.__proto__}", ""],
  ])("a list gives for %s: %j.", async (template, expected) => {
    const args = ["list", "-r", "pods", "--page-size", "1", "-o", `jsonpath=${template}`];
    expect(await stdoutOf(...args)).toBe(expected);
  });

  test.each([
    ["", "template is empty"],
    ["{.a", "{ without its }"],
    ["{range .a}", "{range} without its {end}"],
    ["{end}", "{end} without its {range}"],
    ["{.a[?(@.b}", "[ without its ]"],
    ["{.a[b]}", "not valid"],
    ["{.a..}", "no name"],
    ['{"a}', "without its }"],
  ])("%j is refused.", async (template, problem) => {
    const outcome = await served.run(["get", "k", "-o", `jsonpath=${template}`]);
    expect(outcome).toMatchObject({ code: 2, stdout: "" });
    expect(outcome.stderr).toContain(problem);
  });

  test("a value is exact in a pipe, and escaped on a terminal.", async () => {
    const args = ["get", "text", "-r", "blobs", "-o", "jsonpath={.value}"];
    expect(await stdoutOf(...args)).toBe("12\u001b[2J\n");
    expect((await served.run(args, { columns: 80 })).stdout).toBe("12\\u{1b}[2J\n");
  });
});

describe("As columns,", () => {
  test("a list has what the paths lead to.", async () => {
    const columns = "columns=NAME:.key,NODE:.value.spec.node,NONE:.x[0,1],L:.value.labels['a.b/c']";
    expect(await stdoutOf("list", "-r", "pods", "-o", columns)).toBe(
      "NAME    NODE  NONE    L\nns-1/a  n1    <none>  x\nns-1/b  n2    <none>  x\n",
    );
    expect(await stdoutOf("get", "text", "-r", "blobs", "-o", "columns=V:.value")).toBe(
      "V\n12\\u{1b}[2J\n",
    );
  });

  test.each(["", "NAME", "NAME:", ":.key", "A:.b,,C:.d"])("%j is refused.", async (columns) => {
    expect(await served.run(["list", "-o", `columns=${columns}`])).toMatchObject({ code: 2 });
  });
});

describe("Changes", () => {
  test("of a history are objects with a type.", async () => {
    await served.client.put("blobs", "h", Buffer.from("1"));
    await served.client.put("blobs", "h", Buffer.from("2"));
    await served.client.delete("blobs", "h");
    const paths = "T:.type,K:.key,V:.value";
    const table = await stdoutOf("history", "h", "-r", "blobs", "-o", `columns=${paths}`);
    expect(table).toBe("T         K  V\nDELETED   h  2\nMODIFIED  h  2\nADDED     h  1\n");
    const yaml = await stdoutOf("history", "h", "-r", "blobs", "-o", "yaml");
    const documents = parseAllDocuments(yaml);
    expect([...documents].map((document) => document.toJS().type)).toEqual([
      ...["DELETED", "MODIFIED", "ADDED"],
    ]);
  });

  test("of a watch name the resource if there may be several.", async () => {
    const terminal = new Terminal();
    const template = 'jsonpath={.resource} {.type} {.value}{" was "}{.previous.value}';
    const running = terminal.run(
      ...["watch", "--scope", "pods=", "--scope", "blobs=w", "-o", template, "--previous"],
      ...["--address", served.address, "--initial"],
    );
    await terminal.until("stdout", '"n2"');
    await served.client.put("blobs", "w", Buffer.from("1"));
    await served.client.put("blobs", "w", Buffer.from("2"));
    await terminal.until("stdout", "was 1");
    terminal.interrupt();
    const { code, stdout } = await running;
    expect(code).toBe(0);
    expect(stdout).toContain("blobs ADDED 1 was \nblobs MODIFIED 2 was 1\n");
    expect(stdout).toMatch(/^pods ADDED \{"spec":\{"node":"n1"/m);
  });
});

test.each([1_000, 100_000])(
  "A value with %i levels is shown as the text that it is.",
  async (levels) => {
    const deep = `${"[".repeat(levels)}${"]".repeat(levels)}`;
    await served.client.put("pods", "deep", Buffer.from(deep));
    for (const output of ["yaml", "jsonpath={.value}", "jsonpath={..x}", "columns=V:.value"]) {
      expect(await served.run(["get", "deep", "-r", "pods", "-o", output])).toMatchObject({
        code: 0,
        stderr: "",
      });
    }
    expect(await stdoutOf("get", "deep", "-r", "pods", "-o", "jsonpath={.value}")).toBe(
      `${deep}\n`,
    );
    await served.client.delete("pods", "deep");
  },
);
