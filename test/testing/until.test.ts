import { describe, expect, test } from "vitest";
import { until } from "../../src/testing/until.ts";

describe("until", () => {
  test("resolves to what the condition returns, as soon as it holds", async () => {
    let turns = 0;
    setImmediate(() => turns++);
    expect(await until("a turn", () => turns > 0 && `turn ${turns}`)).toBe("turn 1");
    expect(await until("zero, which is a value", () => 0)).toBe(0);
  });

  test("waits for conditions that are asynchronous, and for those that throw", async () => {
    let looks = 0;
    const look = async (): Promise<string | undefined> => {
      looks++;
      if (looks < 3) throw new Error("not yet");
      return looks < 100 ? undefined : "there";
    };
    expect(await until("the hundredth look", look)).toBe("there");
  });

  test("says what it has waited for, and the last error", async () => {
    const cause = new Error("there is no pod");
    const failing = until("the pod", () => Promise.reject(cause), { timeoutMs: 20 });
    const message = "Timed out after 20 ms, waiting for the pod. Last error: there is no pod";
    await expect(failing).rejects.toMatchObject({ message, cause });
    const never = until("the pod", () => false, { timeoutMs: 20 });
    await expect(never).rejects.toThrow(/^Timed out after 20 ms, waiting for the pod\.$/);
  });

  test("ends in time when the condition itself hangs", async () => {
    const hanging = until("a response", () => new Promise<true>(() => {}), { timeoutMs: 20 });
    await expect(hanging).rejects.toThrow("Timed out after 20 ms, waiting for a response.");
  });

  test("refuses a timeout of 0", async () => {
    const refused = until("anything", () => true, { timeoutMs: 0 });
    await expect(refused).rejects.toMatchObject({ reason: "INVALID_REQUEST", field: "timeoutMs" });
  });
});
