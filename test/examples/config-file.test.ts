import { chmod, mkdtemp, open, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import type { TypedResource } from "../../src/client/typed/typed-resource.ts";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { Example, eventually } from "./example.ts";
import { Service } from "./service.ts";

const key = "web/config";

/** A folder for the file, a service with the key, and the example between them. */
class Following {
  readonly file: string;
  readonly service: Service;
  readonly values: TypedResource<unknown>;

  private constructor(folder: string, service: Service) {
    this.file = join(folder, "config.json");
    this.service = service;
    this.values = service.client.resource("default", jsonValues());
  }

  static async open(): Promise<Following> {
    const folder = await mkdtemp(join(tmpdir(), "watch-fanout-example-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    return new Following(folder, await Service.start());
  }

  start(...hook: readonly string[]): Example {
    return Example.start("config-file/main.ts", [key, this.file, ...hook], this.service.address);
  }

  readonly content = (): Promise<string> => readFile(this.file, "utf8");
}

describe("A config file that is kept equal to a key", () => {
  it("is written at the start and at each change", async () => {
    const following = await Following.open();
    await following.values.put(key, { workers: 1 });
    const example = following.start();
    await eventually(following.content, '{"workers":1}');
    await following.values.put(key, { workers: 2 });
    await eventually(following.content, '{"workers":2}');
    expect(await readdir(join(following.file, ".."))).toEqual(["config.json"]);
    expect(await example.stop()).toBe(0);
  });

  it("is replaced in one step, with its existing mode", async () => {
    const following = await Following.open();
    await writeFile(following.file, "what was there before");
    await chmod(following.file, 0o640);
    await using before = await open(following.file);
    following.start();
    await following.values.put(key, { workers: 1 });
    await eventually(following.content, '{"workers":1}');
    expect(await before.readFile("utf8")).toBe("what was there before");
    expect((await stat(following.file)).mode & 0o777).toBe(0o640);
  });

  it("has a command run after each change, and not without a change", async () => {
    const following = await Following.open();
    await following.values.put(key, 1);
    const seen = `${following.file}.seen`;
    const hook = `cat ${following.file} >>${seen}; exit 3`;
    const first = following.start(hook);
    await first.said(/ended with 3/);
    await following.values.put(key, 2);
    await eventually(() => readFile(seen, "utf8"), "12");
    await first.stop();
    const second = following.start(hook);
    await following.values.put(key, 2);
    await following.values.put(key, 3);
    await second.said(/ended with 3/);
    expect(await readFile(seen, "utf8")).toBe("123");
  });

  it("keeps its last content while the key does not exist or the service is away", async () => {
    const following = await Following.open();
    await following.values.put(key, 1);
    const example = following.start();
    await eventually(following.content, "1");
    await following.values.delete(key);
    await example.said(/stays as it is: there is no web\/config/);
    expect(await following.content()).toBe("1");
    await following.values.put(key, 2);
    await eventually(following.content, "2");

    await following.service.kill();
    await example.said(/stays as it is: No response/);
    expect(await following.content()).toBe("2");
    await following.service.startAgain();
    await example.until("the new store to be seen", () => {
      const empty = example.lines.filter((line) => line.endsWith("there is no web/config."));
      return empty.length === 2 || undefined;
    });
    expect(await following.content()).toBe("2");
    await following.values.put(key, 3);
    await eventually(following.content, "3");
  });

  it("requires a key and a file", async () => {
    const example = Example.start("config-file/main.ts", [key]);
    expect(await example.ended()).toBe(2);
    expect(example.output).toMatch(/^Usage: /);
  });
});
