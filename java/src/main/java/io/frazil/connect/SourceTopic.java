package io.frazil.connect;

import java.util.Objects;
import org.apache.kafka.common.Uuid;

/** What a cluster tells of a source topic. */
final class SourceTopic {
    private final Uuid id;
    private final int partitions;

    SourceTopic(Uuid id, int partitions) {
        this.id = Objects.requireNonNull(id);
        this.partitions = partitions;
    }

    /** Returns its id: another topic of the same name has another one. */
    Uuid id() {
        return id;
    }

    /** Returns how many partitions it has. */
    int partitions() {
        return partitions;
    }
}
