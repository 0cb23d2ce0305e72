import { execFile } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { cp, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Command } from "commander";
import { describe, expect, onTestFinished, test } from "vitest";
import { commandsPage } from "../../scripts/reference/commands.ts";
import { configurationPage, exampleFile } from "../../scripts/reference/configuration.ts";
import { parseExposition } from "../../scripts/reference/exposition.ts";
import { metricsPage } from "../../scripts/reference/metrics.ts";
import { addClientCommands } from "../../src/cli/client/client-commands.ts";
import { exitCodes } from "../../src/cli/output/command-io.ts";
import { definition, optionNames, variableOf } from "../../src/config/options.ts";
import { keysOf } from "../../src/config/resource-settings.ts";
import { CommandProcess, startServe, untilStatus } from "../cli/serve/serve-process.ts";
import { certificates, load } from "../config/sources.ts";

const run = promisify(execFile);
const checkout = fileURLToPath(new URL("../..", import.meta.url));

describe("The configuration reference", () => {
  const page = configurationPage();

  test.each(optionNames)("has %s, with its flag, variable and default", (name) => {
    const { secret, value, default: initial } = definition(name);
    const term = secret === true ? variableOf(name) : `--${name} ${value}`;
    const [, entry = ""] = page.split(`\n- \`${term}\``);
    const [facts = ""] = entry.replaceAll(/\n {2}/g, " ").split("\n");
    expect(facts).not.toBe("");
    if (secret === true) expect(page).not.toContain(`--${name} `);
    // The head of the page says how variables are named.
    expect(variableOf(name)).toBe(`WATCH_FANOUT_${name.toUpperCase().replaceAll("-", "_")}`);
    if (initial !== undefined) expect(facts).toContain(` Default: \`${initial}\`.`);
  });

  test("has every key of a resource, with what it is for and its values", () => {
    for (const key of keysOf("resource")) {
      expect(page).toMatch(new RegExp(`^- \`${key}\`: [^]+? Value: `, "m"));
    }
    // Each of these is an option as well, which says what it is for.
    for (const key of keysOf("event-window")) {
      expect(page).toMatch(new RegExp(`^- \`event-window\`: [^]+? Value: [^.]*\\b${key}\\b`, "m"));
      expect(page).toContain(`\`--event-window-${key} `);
    }
  });

  test("shows a file that the service accepts", () => {
    const files = {
      "/etc/watch-fanout/etcd-ca.pem": certificates.cert,
      "/etc/watch-fanout/tls.crt": certificates.cert,
      "/etc/watch-fanout/tls.key": certificates.key,
    };
    const { resources } = load({ yaml: exampleFile, files });
    expect(resources.map(({ name }) => name)).toEqual(["services", "pods"]);
  });
});

describe("The commands reference", () => {
  const page = commandsPage();

  test("has each exit code, with what it means to a script", () => {
    for (const code of Object.values(exitCodes)) expect(page).toContain(`| ${code} | `);
  });

  test("has each option of a command, its own or one that all commands have", () => {
    const program = new Command();
    addClientCommands(program);
    for (const { options } of program.commands) {
      for (const { flags } of options) expect(page).toContain(`- \`${flags}\`: `);
    }
  });
});

describe("The metrics reference", () => {
  test("has everything that the service exposes, with its labels", async () => {
    const page = await metricsPage();
    const { process, grpc, admin } = await startServe();
    await using _ = process;
    await untilStatus(`${admin}/readyz`, 200);
    await using put = new CommandProcess(["put", "a", "b", "--address", grpc]);
    expect(await put.exit).toMatchObject({ code: 0 });
    const exposed = parseExposition(await untilStatus(`${admin}/metrics`, 200));
    expect(exposed.map(({ name }) => name)).toContain("watch_fanout_rpc_duration_seconds");
    const sections = page.split(/^##+ /m);
    for (const { name, kind, unit, labels } of exposed) {
      const term = new RegExp(`\n- \`${name}(?:{([a-z_,]+)})?\``);
      const section = sections.find((text) => term.test(text)) ?? "";
      const [head = "", own = "", entry = ""] = section.split(term);
      const [facts = ""] = entry.split("\n- ");
      const isCounter = name.endsWith("_total");
      if (kind === "histogram") expect(facts, name).toMatch(/^ \(histogram\): \S/);
      else expect([kind, facts], name).toEqual([isCounter ? "counter" : "gauge", facts]);
      expect(facts, name).toMatch(/: \S/);
      if (unit === "s") expect(name).toMatch(/_seconds$/);
      if (unit === "By") expect(name).toMatch(/_bytes(?:_total)?$/);
      for (const label of labels.keys()) {
        const isShared = head.includes(`\nAll have the label \`${label}\`.\n`);
        expect(isShared || own.split(",").includes(label), `${name}: ${label}`).toBe(true);
      }
    }
  });

  test("has every metric that the source names", async () => {
    const page = await metricsPage();
    const sources = globSync("src/**/*.ts", { cwd: checkout });
    const named = sources.flatMap((path) => [
      ...readFileSync(join(checkout, path), "utf8").matchAll(/"(watch_fanout_[a-z_]+)"/g),
    ]);
    expect(named.length).toBeGreaterThan(0);
    // A name without an end is what several metrics begin with.
    for (const [, name] of named)
      expect(page).toMatch(new RegExp(`\`${name}(?:_[a-z_]+)?(?:{[a-z_,]+})?\``));
  });
});

describe("What Prometheus's text format exposes", () => {
  const facts = (name: string, type: string): string =>
    `# HELP ${name} Some words.\n# UNIT ${name} s\n# TYPE ${name} ${type}\n`;

  test("is read as metrics with their labels and values", () => {
    const text = `${facts("a", "gauge")}a{x="1",y="{\\"}"} 2\na{x="3"} 4 5\n${facts("b_total", "counter")}b_total 1\n`;
    const [a, b] = parseExposition(text.replace(" 4 5", " 4"));
    expect(a).toMatchObject({ name: "a", kind: "gauge", unit: "s", description: "Some words." });
    expect(a?.labels).toEqual(
      new Map([
        ["x", new Set(["1", "3"])],
        ["y", new Set(['{\\"}'])],
      ]),
    );
    expect(b).toMatchObject({ name: "b_total", kind: "counter", labels: new Map() });
  });

  test("is one metric where it is a histogram, without the label of its buckets", () => {
    const series = 'h_bucket{m="x",le="1"} 1\nh_sum{m="x"} 1\nh_count{m="x"} 1\n';
    const metrics = parseExposition(facts("h", "histogram") + series);
    expect(metrics.map(({ name, labels }) => [name, [...labels.keys()]])).toEqual([["h", ["m"]]]);
  });

  test("is refused without a unit or description, and of a metric that is not introduced", () => {
    expect(() => parseExposition("# TYPE a gauge\n# HELP a Some words.\n")).toThrow(
      "a has no UNIT",
    );
    expect(() =>
      parseExposition("# TYPE a gauge\n# UNIT a s\n# HELP a description missing\n"),
    ).toThrow("a has no HELP");
    expect(() => parseExposition("a 1\n")).toThrow("a is a sample of no metric");
  });
});

test("The check names a page that is not current, and writes nothing", async () => {
  const folder = await mkdtemp(join(tmpdir(), "watch-fanout-reference-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  for (const part of ["docs", "deploy/grafana"]) {
    await cp(join(checkout, part), join(folder, part), { recursive: true });
  }
  const check = (): Promise<{ readonly stderr: string }> =>
    run(process.execPath, [join(checkout, "scripts/reference.ts"), "--check"], { cwd: folder });
  expect(await check()).toMatchObject({ stderr: "" });
  await writeFile(join(folder, "docs/reference/metrics.md"), "# Other metrics\n");
  await expect(check()).rejects.toMatchObject({
    code: 1,
    stderr: 'Not current with the source; run "npm run generate": docs/reference/metrics.md\n',
  });
  expect(readFileSync(join(folder, "docs/reference/metrics.md"), "utf8")).toBe("# Other metrics\n");
});
