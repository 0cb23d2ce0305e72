import { test } from "vitest";
import { seedOr } from "./seeded.ts";
import { World, type WorldOptions } from "./world.ts";

/** Maximum duration of one fault test, in milliseconds. Its waits have limits of their own. */
const timeoutMs = 180_000;

/**
 * A test that opens a world, does something to it, and demands in the end that every promise was kept to
 * every client. All that is left to chance comes from `seed`, or from FAULTS_SEED, which a failure names.
 */
export function faultTest(
  name: string,
  seed: number,
  options: WorldOptions,
  body: (world: World) => Promise<void>,
): void {
  test(name, { timeout: timeoutMs }, async ({ task }) => {
    const chosen = seedOr(seed);
    try {
      await inWorld(chosen, options, body);
    } catch (error) {
      const what = error instanceof Error ? error.message : String(error);
      throw new Error(
        `${what}\n\nTo repeat: FAULTS_SEED=${chosen} npx vitest run ${task.file.name} -t ${JSON.stringify(name)}`,
        { cause: error },
      );
    }
  });
}

async function inWorld(
  seed: number,
  options: WorldOptions,
  body: (world: World) => Promise<void>,
): Promise<void> {
  const world = await World.open(seed, options);
  try {
    await body(world);
    const wrong = await world.wrong();
    if (wrong.length > 0) throw new Error(reportOf(wrong));
  } finally {
    await world.close();
  }
}

function reportOf(wrong: readonly string[]): string {
  const shown = wrong.slice(0, 20).join("\n");
  return `${wrong.length} promises were broken:\n${shown}`;
}
