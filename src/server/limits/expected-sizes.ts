/**
 * Expected size of a response with one object until its size is known, in bytes; a larger object that is cached is expected
 * to have its size. With a bound of 16 MiB per connection,
 * 128 objects are read at once for a connection. Most objects are far smaller; etcd's default maximum is 12 times as
 * large.
 */
export const expectedObjectBytes = 128 * 1024;
