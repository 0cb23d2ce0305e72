import { execFileSync } from "node:child_process";
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { KeptResources } from "../../../src/cli/serve/kept-resources.ts";
import type { ResourceInfo } from "../../../src/client/resource-info.ts";
import { FakeClock } from "../../fake-clock.ts";

const things: ResourceInfo = {
  name: "things",
  codec: "json",
  isCached: true,
  revision: 7,
  historyId: "one",
  isReadableInFull: true,
  staleForMs: 5,
  fields: ["phase"],
  indexedFields: [],
  oldestRevision: 3,
  views: ["FULL", "KEYS"],
  etcdKeys: { prefix: "/things/", historyKey: "/history" },
};

/** The same, without what is of the moment. */
const kept = { ...things, revision: 0, historyId: "", staleForMs: undefined, oldestRevision: 0 };

/** A folder that is created when something is kept, what is kept there of an upstream, and the log. */
function opened() {
  const parent = mkdtempSync(join(tmpdir(), "kept-resources-"));
  onTestFinished(() => rmSync(parent, { recursive: true }));
  const folder = join(parent, "caches");
  const lines: string[] = [];
  const logger = pino({ level: "warn" }, { write: (line) => void lines.push(line) });
  const clock = new FakeClock();
  const of = (upstream: readonly string[], user = "relay") =>
    new KeptResources(folder, { upstream, user }, logger, clock);
  return { folder, lines, clock, of };
}

describe("The kept resources of an upstream", () => {
  test("are not waited for without end if the disk does not respond", async () => {
    const { folder, of, lines, clock } = opened();
    mkdirSync(folder);
    // No process writes into it, so that a read does not end.
    const file = join(folder, "resources.json");
    execFileSync("mkfifo", [file]);
    onTestFinished(() => closeSync(openSync(file, "r+")));
    const loading = of(["a:1"]).load();
    await clock.elapse(5_000);
    expect(await loading).toBeUndefined();
    expect(lines.join()).toMatch("did not respond within 5 s");
  });

  test("are absent before any were kept, which is no failure", async () => {
    const { of, lines } = opened();
    expect(await of(["a:1"]).load()).toBeUndefined();
    expect(lines).toEqual([]);
  });

  test("are those that were kept last, without what was of the moment", async () => {
    const { of, folder } = opened();
    const unknown = { ...things, name: "others", codec: undefined, etcdKeys: undefined };
    await of(["a:1", "b:1"]).keep([]);
    await of(["a:1", "b:1"]).keep([things, unknown]);
    const others = { ...kept, name: "others", codec: undefined, etcdKeys: undefined };
    expect(await of(["b:1", "a:1"]).load()).toEqual([kept, others]);
    expect(readdirSync(folder)).toEqual(["resources.json"]);
  });

  test("are not those of another upstream", async () => {
    const { of, lines } = opened();
    await of(["a:1"]).keep([things]);
    expect(await of(["b:1"]).load()).toBeUndefined();
    expect(lines).toEqual([expect.stringContaining("of another upstream, a:1.")]);
  });

  test("are not those of another user", async () => {
    const { of, lines } = opened();
    await of(["a:1"], "ann").keep([things]);
    expect(await of(["a:1"], "bob").load()).toBeUndefined();
    expect(lines).toEqual([expect.stringContaining("of another user.")]);
    expect(await of(["a:1"], "ann").load()).toEqual([kept]);
  });

  test.each(["", "{", "{}", '{"upstream":["a:1"],"user":"relay","resources":[{"name":"things"}]}'])(
    "can't be used if the file is %j, which is logged",
    async (content) => {
      const { of, folder, lines } = opened();
      await of(["a:1"]).keep([things]);
      writeFileSync(join(folder, "resources.json"), content);
      expect(await of(["a:1"]).load()).toBeUndefined();
      expect(lines.join("")).toContain("the kept resources of the upstream can't be used");
    },
  );

  test("that can't be written are logged", async () => {
    const { of, folder, lines } = opened();
    writeFileSync(folder, "a file in the place of the folder");
    await of(["a:1"]).keep([things]);
    expect(lines.join("")).toContain("the resources of the upstream can't be kept");
  });
});
