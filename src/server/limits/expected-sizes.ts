/**
 * What an answer with one object is expected to take until its size is known, in bytes: so many of 16 MiB are read at
 * once for a connection. Most objects are far smaller; the largest that etcd has by default are 12 times as large.
 */
export const expectedObjectBytes = 128 * 1024;
