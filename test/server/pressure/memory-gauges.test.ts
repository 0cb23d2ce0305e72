import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  CgroupGauge,
  HeapGauge,
  memoryGauges,
  oldGenerationLimit,
  ProcessGauge,
} from "../../../src/server/pressure/memory-gauges.ts";
import { SetGauge } from "./set-gauge.ts";

const mebibyte = 1024 ** 2;

/** The files of a kernel: their paths below the root, and the one with the groups of the process. */
function kernel(self: string, files: Readonly<Record<string, string>>) {
  const folder = mkdtempSync(join(tmpdir(), "cgroup-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const write = (path: string, content: string): void => {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), content);
  };
  write("self", self);
  for (const [path, content] of Object.entries(files)) write(`root/${path}`, content);
  return {
    write,
    find: () => CgroupGauge.find({ root: join(folder, "root"), self: join(folder, "self") }),
  };
}

describe("The memory of a control group", () => {
  test("of version 2 is its use without the inactive page cache", () => {
    const { find, write } = kernel("0::/pods/a\n", {
      "pods/a/memory.max": "1000000\n",
      "pods/a/memory.current": "700000\n",
      "pods/a/memory.stat": "anon 5\ninactive_file 200000\nactive_file 7\n",
    });
    const gauge = find();
    const reading = {
      limit: "cgroup",
      usedBytes: 500_000,
      ceilingBytes: 900_000,
      measurement: 1,
      countsGarbage: true,
    };
    expect(gauge?.read()).toEqual(reading);
    write("root/pods/a/memory.current", "800000\n");
    expect(gauge?.read()).toEqual({ ...reading, usedBytes: 600_000, measurement: 2 });
  });

  test("of version 1 is found by its controller", () => {
    const { find } = kernel("9:name=systemd:/x\n4:cpu,memory:/pods/a\n0::/\n", {
      "memory/pods/a/memory.limit_in_bytes": "2000\n",
      "memory/pods/a/memory.usage_in_bytes": "1500\n",
      "memory/pods/a/memory.stat": "inactive_file 1\ntotal_inactive_file 300\n",
    });
    expect(find()?.read()).toMatchObject({ usedBytes: 1_200, ceilingBytes: 1_800 });
  });

  test("has the lowest limit of all groups around the process", () => {
    const { find } = kernel("0::/pods/a\n", {
      "pods/a/memory.max": "max\n",
      "pods/memory.max": "5000\n",
      "pods/memory.current": "100\n",
      "memory.max": "9000\n",
      "memory.current": "200\n",
    });
    expect(find()?.read()).toMatchObject({ usedBytes: 100, ceilingBytes: 4_500 });
  });

  test("is at the top where a container does not see the path of the host", () => {
    const { find } = kernel("0::/kubepods/pod1/c1\n", {
      "memory.max": "9000\n",
      "memory.current": "200\n",
    });
    expect(find()?.read()).toMatchObject({ usedBytes: 200, ceilingBytes: 8_100 });
  });

  test.each([
    ["without a limit", "0::/a\n", { "a/memory.max": "max\n" }],
    [
      "with the largest limit of version 1",
      "4:memory:/\n",
      { "memory/memory.limit_in_bytes": "9223372036854771712\n" },
    ],
    ["without files", "0::/a\n", {}],
    ["with other content", "nonsense", { "memory.max": "nonsense" }],
  ])("is not measured %s", (_, self, files) => {
    expect(kernel(self, files).find()).toBeUndefined();
  });

  test("has no reading while its files can't be read", () => {
    const { find } = kernel("0::/\n", { "memory.max": "1000\n" });
    expect(find()?.read()).toBeUndefined();
  });
});

describe("The old generation of the heap", () => {
  test("counts with what its last collection has left", () => {
    let used = 10;
    let collected = (): void => {};
    let stopped = 0;
    const gauge = new HeapGauge({
      limitBytes: 1_000,
      usedBytes: () => used,
      collect: () => {
        used = 100;
        collected();
      },
      onCollected: (listener) => {
        collected = listener;
        return () => stopped++;
      },
    });
    const reading = { limit: "heap", ceilingBytes: 750, countsGarbage: false } as const;
    expect(gauge.read()).toEqual({ ...reading, usedBytes: 10, measurement: 0 });
    used = 400;
    collected();
    used = 950;
    expect(gauge.read()).toEqual({ ...reading, usedBytes: 400, measurement: 1 });
    used = 300;
    expect(gauge.read()).toEqual({ ...reading, usedBytes: 300, measurement: 1 });
    gauge.refresh();
    expect(gauge.read()).toEqual({ ...reading, usedBytes: 100, measurement: 2 });
    gauge.close();
    expect(stopped).toBe(1);
  });

  test.each([
    ["Node.js 22", 112, "12.4.254.21-node.57", [], 64],
    ["Node.js 24", 256, "13.6.233.17-node.53", [], 64],
    ["a set semi-space", 88, "13.6", ["--max-semi-space-size=8"], 64],
    ["one set twice", 88, "13.6", ["--max-semi-space-size=32", "--max_semi_space_size=8"], 64],
    ["less than 64 MiB of it", 248, "13.6", [], 56],
    ["a heap smaller than that", 100, "13.6", [], 25],
  ])(
    "has the heap's limit without three semi-spaces, with %s",
    (_, limit, v8Version, flags, of) => {
      expect(oldGenerationLimit(limit * mebibyte, { flags, v8Version })).toBe(of * mebibyte);
    },
  );

  test("of this process is measured after each of its collections", async () => {
    const [gauge] = memoryGauges(undefined);
    const first = gauge?.read();
    expect(first?.usedBytes).toBeGreaterThan(mebibyte);
    expect(first?.ceilingBytes).toBeGreaterThan(first?.usedBytes ?? Infinity);
    gauge?.refresh?.();
    while (gauge?.read()?.measurement === first?.measurement) {
      await new Promise((resolve) => setImmediate(resolve));
    }
    gauge?.close();
  });
});

test("The memory that the process uses is the heap without its garbage, and what is outside of it", () => {
  const heap = new SetGauge();
  heap.used = 300;
  heap.measurement = 7;
  let outside = 100;
  const gauge = new ProcessGauge(500, heap, () => outside);
  const reading = {
    limit: "process",
    ceilingBytes: 500,
    countsGarbage: false,
    measurement: 7,
  } as const;
  expect(gauge.read()).toEqual({ ...reading, usedBytes: 400 });
  outside = 150;
  expect(gauge.read()).toEqual({ ...reading, usedBytes: 450 });
  heap.used = undefined;
  expect(gauge.read()).toBeUndefined();
});

test("A set ceiling is one of what the process uses, in place of the control group's", () => {
  const gauges = memoryGauges(123 * mebibyte);
  expect(gauges.map((gauge) => gauge.read()?.limit)).toEqual(["heap", "process"]);
  expect(gauges[1]?.read()?.ceilingBytes).toBe(123 * mebibyte);
  expect(gauges[1]?.read()?.usedBytes).toBeGreaterThan(10 * mebibyte);
  const values = Buffer.alloc(50 * mebibyte, 1);
  expect(gauges[1]?.read()?.usedBytes).toBeGreaterThan(values.byteLength);
  for (const gauge of gauges) gauge.close();
});
