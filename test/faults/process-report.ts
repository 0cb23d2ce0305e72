/** What a process takes. */
export interface ProcessReport {
  /** Bytes of objects that are in use. */
  readonly heapUsed: number;
  /** Bytes of buffers. */
  readonly buffers: number;
  /** Bytes of memory that the system has given it. */
  readonly rss: number;
  /** What keeps its event loop busy, by kind. */
  readonly handles: Readonly<Record<string, number>>;
}

/** Loaded into a replica's process before all else: tells its parent of itself, and dies with it. */
function reportToParent(): void {
  if (process.send === undefined) return;
  process.on("disconnect", () => process.exit(1));
  process.on("message", () => {
    globalThis.gc?.();
    const { heapUsed, arrayBuffers, rss } = process.memoryUsage();
    const handles: Record<string, number> = {};
    for (const kind of process.getActiveResourcesInfo()) handles[kind] = (handles[kind] ?? 0) + 1;
    const report: ProcessReport = { heapUsed, buffers: arrayBuffers, rss, handles };
    process.send?.(report);
  });
}

reportToParent();
