import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { promtool as binary } from "../../scripts/promtool.ts";
import { reasons } from "../../src/base/errors.ts";
import { exposedSeries, unknownSeries } from "./exposed-metrics.ts";

const run = promisify(execFile);
const folder = "deploy/prometheus";

interface Rule {
  readonly record?: string;
  readonly alert?: string;
  readonly expr: string;
  readonly labels?: { readonly severity?: string };
  readonly annotations?: Readonly<Record<string, string>>;
}

interface RuleTests {
  readonly tests: readonly {
    readonly name: string;
    readonly input_series: readonly { readonly series: string }[];
    readonly promql_expr_test?: readonly {
      readonly exp_samples: readonly { readonly labels: string }[];
    }[];
    readonly alert_rule_test?: readonly {
      readonly alertname: string;
      readonly exp_alerts: readonly unknown[];
    }[];
  }[];
}

const read = <T>(file: string): T => parse(readFileSync(join(folder, file), "utf8"));
const rules = read<{ groups: { rules: Rule[] }[] }>("alerts.yaml").groups.flatMap(
  (group) => group.rules,
);
const alerts = rules.filter((rule) => rule.alert !== undefined);
const testFiles = ["alerts.test.yaml", "burn-rates.test.yaml"];
const groups = testFiles.flatMap((file) => read<RuleTests>(file).tests);
const promtool = await binary.installed();

describe("The alerts", () => {
  test.skipIf(promtool === undefined).each(testFiles)(
    "fire and are silent as %s says (needs promtool: node scripts/promtool.ts)",
    { timeout: 600_000 },
    async (file) => {
      // It collects garbage less often: that takes a quarter of its CPU time otherwise.
      const env = { ...process.env, GOGC: "800" };
      await run(promtool ?? "", ["test", "rules", join(folder, file)], { timeout: 580_000, env });
    },
  );

  test.skipIf(promtool === undefined)(
    "have valid templates, and no rule twice (needs promtool: node scripts/promtool.ts)",
    async () => {
      const options = ["check", "rules", "--lint-fatal", join(folder, "alerts.yaml")];
      await run(promtool ?? "", options, { timeout: 160_000 });
    },
  );

  test.each(alerts.map((rule) => rule.alert))(
    "%s has a test in which it fires, and in which not",
    (alert) => {
      const expected = groups
        .filter(({ name }) => name.split(", ").includes(alert ?? ""))
        .flatMap((group) => [
          ...(group.promql_expr_test ?? []).map(({ exp_samples }) =>
            exp_samples.some(({ labels }) => labels.includes(`alertname="${alert}"`)),
          ),
          ...(group.alert_rule_test ?? []).map(({ exp_alerts }) => exp_alerts.length > 0),
        ]);
      expect(expected).toContain(true);
      expect(expected).toContain(false);
    },
  );

  test("name series and labels that the service exposes, in their tests as well", () => {
    expect(exposedSeries().size).toBeGreaterThan(80);
    expect(unknownSeries(rules.map(({ expr }) => expr))).toEqual([]);
    const tested = groups.flatMap((group) => group.input_series.map(({ series }) => series));
    expect(unknownSeries(tested)).toEqual([]);
  });

  test("count ended watches by reasons that exist", () => {
    const named = rules.flatMap(
      ({ expr }) => /reason=~"([^"]+)"/.exec(expr)?.[1]?.split("|") ?? [],
    );
    expect(named.length).toBeGreaterThan(0);
    const known: readonly string[] = [...reasons, "RESET"];
    for (const name of named) {
      expect(known.some((reason) => new RegExp(`^(?:${name})$`).test(reason))).toBe(true);
    }
  });
});

describe("The runbook", () => {
  const runbook = readFileSync("docs/runbook.md", "utf8");
  const sections = new Map(
    runbook
      .split(/^### /m)
      .slice(1)
      .map((text) => [text.slice(0, text.indexOf("\n")), text]),
  );

  test.each(alerts)("has a section for $alert", ({ alert = "", labels, annotations }) => {
    const section = sections.get(alert);
    for (const heading of ["Means", "Look at", "do"]) {
      expect(section).toMatch(new RegExp(`\\*\\*[^*]*${heading}[^*]*\\*\\*`, "i"));
    }
    expect(annotations?.["runbook"]).toBe(`docs/runbook.md#${alert.toLowerCase()}`);
    expect(["page", "ticket"]).toContain(labels?.severity);
  });

  test("has no section for an alert that does not exist", () => {
    expect([...sections.keys()]).toEqual(alerts.map(({ alert }) => alert));
  });
});
