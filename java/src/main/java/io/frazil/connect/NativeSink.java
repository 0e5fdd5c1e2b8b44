package io.frazil.connect;

import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * The native methods and the handle of one task's session.
 *
 * <p>The handle is a number that the native side never uses twice, so a call after {@link #close()}
 * meets a {@code ConnectException} there and never freed memory. A cleaner that holds only that
 * number closes a session which its task forgot.
 *
 * <p>The natives throw {@code RetriableException}, {@code DataException}, {@code ConfigException} or
 * {@code ConnectException}; nothing else comes out of them. Nothing here loads the library when the
 * class is initialised: Connect touches plugin classes while it scans.
 */
final class NativeSink implements Session {
    private final long session;
    private final AtomicBoolean closed = new AtomicBoolean();
    private final Cleaner.Cleanable cleanable;

    private NativeSink(long session) {
        this.session = session;
        this.cleanable = Sessions.CLEANER.register(this, () -> close(session));
    }

    /** Loads the library if need be and opens a session. */
    static NativeSink open(Map<String, String> config) {
        NativeLibrary.load(config);
        return new NativeSink(open(SinkConfig.encode(WorkerFacts.with(config))));
    }

    /** Checks a configuration, with the library loaded; returns the problems found. */
    static byte[] check(Map<String, String> config) {
        return validate(SinkConfig.encode(WorkerFacts.with(config)));
    }

    @Override
    public int registerSchema(byte[] schema) {
        return registerSchema(session, schema);
    }

    @Override
    public byte[] put(ByteBuffer frame, int length) {
        return put(session, frame, length);
    }

    @Override
    public byte[] control(byte[] request) {
        return control(session, request);
    }

    @Override
    public void close() {
        if (closed.compareAndSet(false, true)) {
            cleanable.clean();
        }
    }

    /** Returns the library's version as UTF-8. */
    static native byte[] version();

    private static native byte[] validate(byte[] config);

    private static native long open(byte[] config);

    private static native int registerSchema(long session, byte[] schema);

    private static native byte[] put(long session, ByteBuffer frame, int length);

    private static native byte[] control(long session, byte[] request);

    private static native void close(long session);

    /** Starts the cleaner's thread with the first session, not with the class. */
    private static final class Sessions {
        static final Cleaner CLEANER = Cleaner.create();
    }
}
