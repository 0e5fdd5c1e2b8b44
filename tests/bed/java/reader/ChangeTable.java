import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionKey;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RewriteFiles;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Schema;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.BaseDeleteLoader;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.InternalRecordWrapper;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.data.parquet.GenericParquetReaders;
import org.apache.iceberg.data.parquet.GenericParquetWriter;
import org.apache.iceberg.deletes.BaseDVFileWriter;
import org.apache.iceberg.deletes.PositionDelete;
import org.apache.iceberg.deletes.PositionDeleteIndex;
import org.apache.iceberg.deletes.PositionDeleteWriter;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.DataWriter;
import org.apache.iceberg.io.DeleteWriteResult;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.parquet.Parquet;
import org.apache.iceberg.rest.RESTCatalog;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.DeleteFileSet;

/**
 * Changes tables of a REST catalog with Iceberg's Java library, as another writer does.
 *
 * <p>The argument is the catalog's URI. Each line of the standard input is a commit: {@code append TAB
 * TABLE TAB ROW...} with rows as {@code column=value} between characters of code 1, {@code delete TAB
 * TABLE TAB COLUMN TAB VALUE...} by deletion vectors or position deletes, {@code delete-wide} by one file
 * of position deletes for all data files of an unpartitioned table, or {@code compact TAB TABLE}.
 * Each is made again on the newest snapshot while another writer is faster.
 */
public final class ChangeTable {
  private static final int TRIES = 20;

  private ChangeTable() {}

  private static Object parse(Type type, String text) {
    return switch (type.typeId()) {
      case INTEGER -> Integer.valueOf(text);
      case LONG -> Long.valueOf(text);
      case STRING -> text;
      case BOOLEAN -> Boolean.valueOf(text);
      case TIMESTAMP -> {
        LocalDateTime moment = LocalDateTime.parse(text);
        boolean zoned = ((Types.TimestampType) type).shouldAdjustToUTC();
        yield zoned ? moment.atOffset(ZoneOffset.UTC) : moment;
      }
      default -> throw new IllegalArgumentException("a column of type " + type);
    };
  }

  private static DataFile write(Table table, StructLike partition, PartitionSpec spec, List<Record> rows)
      throws IOException {
    String place = table.location() + "/data/other-" + UUID.randomUUID() + ".parquet";
    DataWriter<Record> writer =
        Parquet.writeData(table.io().newOutputFile(place))
            .forTable(table)
            .schema(table.schema())
            .withSpec(spec)
            .withPartition(partition)
            .createWriterFunc(GenericParquetWriter::create)
            .build();
    try (writer) {
      rows.forEach(writer::write);
    }
    return writer.toDataFile();
  }

  private static void append(Table table, List<String> texts) throws IOException {
    Schema schema = table.schema();
    var append = table.newAppend();
    for (String text : texts) {
      Record row = GenericRecord.create(schema);
      for (String cell : text.split("\u0001")) {
        String[] pair = cell.split("=", 2);
        row.setField(pair[0], parse(schema.findType(pair[0]), pair[1]));
      }
      PartitionKey key = new PartitionKey(table.spec(), schema);
      key.partition(new InternalRecordWrapper(schema.asStruct()).wrap(row));
      append.appendFile(write(table, key, table.spec(), List.of(row)));
    }
    append.commit();
  }

  /** One data file with its rows, live and deleted. */
  private record Content(FileScanTask task, List<Record> rows, PositionDeleteIndex deleted) {
    DataFile file() {
      return task.file();
    }

    /** Places of live rows that have one of these values. */
    List<Long> where(String column, Set<String> values) {
      List<Long> positions = new ArrayList<>();
      for (int at = 0; at < rows.size(); at++) {
        boolean gone = deleted != null && deleted.isDeleted(at);
        if (!gone && values.contains(String.valueOf(rows.get(at).getField(column)))) {
          positions.add((long) at);
        }
      }
      return positions;
    }

    List<Record> live() {
      List<Record> live = new ArrayList<>();
      for (int at = 0; at < rows.size(); at++) {
        if (deleted == null || !deleted.isDeleted(at)) {
          live.add(rows.get(at));
        }
      }
      return live;
    }
  }

  private static PositionDeleteIndex deletes(Table table, FileScanTask task) {
    if (task.deletes().isEmpty()) {
      return null;
    }
    BaseDeleteLoader loader = new BaseDeleteLoader(file -> table.io().newInputFile(file.location()));
    return loader.loadPositionDeletes(task.deletes(), task.file().location());
  }

  private static List<Content> contents(Table table) throws IOException {
    Schema schema = table.schema();
    List<Content> contents = new ArrayList<>();
    try (CloseableIterable<FileScanTask> tasks = table.newScan().planFiles()) {
      for (FileScanTask task : tasks) {
        List<Record> rows = new ArrayList<>();
        CloseableIterable<Record> read =
            Parquet.read(table.io().newInputFile(task.file().location()))
                .project(schema)
                .createReaderFunc(type -> GenericParquetReaders.buildReader(schema, type))
                .build();
        try (read) {
          read.forEach(rows::add);
        }
        contents.add(new Content(task, rows, deletes(table, task)));
      }
    }
    return contents;
  }

  private static void delete(Table table, String column, Set<String> values) throws IOException {
    boolean vectors = ((BaseTable) table).operations().current().formatVersion() >= 3;
    RowDelta delta = table.newRowDelta().validateFromSnapshot(table.currentSnapshot().snapshotId());
    delta.validateDeletedFiles();
    List<String> touched = new ArrayList<>();
    for (Content content : contents(table)) {
      List<Long> positions = content.where(column, values);
      if (positions.isEmpty()) {
        continue;
      }
      touched.add(content.file().location());
      DeleteWriteResult written =
          vectors ? vector(table, content, positions) : positions(table, content, positions);
      written.deleteFiles().forEach(delta::addDeletes);
      written.rewrittenDeleteFiles().forEach(delta::removeDeletes);
    }
    delta.validateDataFilesExist(touched).validateNoConflictingDeleteFiles();
    delta.commit();
  }

  private static DeleteWriteResult vector(Table table, Content content, List<Long> positions)
      throws IOException {
    OutputFileFactory files =
        OutputFileFactory.builderFor(table, 1, 1).format(FileFormat.PUFFIN).build();
    BaseDVFileWriter writer = new BaseDVFileWriter(files, path -> content.deleted());
    DataFile file = content.file();
    positions.forEach(
        at -> writer.delete(file.location(), at, content.task().spec(), file.partition()));
    writer.close();
    return writer.result();
  }

  private static DeleteWriteResult positions(Table table, Content content, List<Long> positions)
      throws IOException {
    DataFile file = content.file();
    List<Long> all = new ArrayList<>(positions);
    if (content.deleted() != null) {
      content.deleted().forEach(all::add);
    }
    String place = table.location() + "/data/other-" + UUID.randomUUID() + "-deletes.parquet";
    PositionDeleteWriter<Record> writer =
        Parquet.writeDeletes(table.io().newOutputFile(place))
            .withSpec(content.task().spec())
            .withPartition(file.partition())
            .buildPositionWriter();
    PositionDelete<Record> one = PositionDelete.create();
    try (writer) {
      all.stream().sorted().forEach(at -> writer.write(one.set(file.location(), at)));
    }
    return new DeleteWriteResult(
        List.of(writer.toDeleteFile()), writer.referencedDataFiles(), content.task().deletes());
  }

  private static void deleteWide(Table table, String column, Set<String> values) throws IOException {
    List<Content> contents = new ArrayList<>(contents(table));
    contents.sort((one, other) -> one.file().location().compareTo(other.file().location()));
    String place = table.location() + "/data/other-" + UUID.randomUUID() + "-deletes.parquet";
    PositionDeleteWriter<Record> writer =
        Parquet.writeDeletes(table.io().newOutputFile(place))
            .withSpec(table.spec())
            .buildPositionWriter();
    PositionDelete<Record> one = PositionDelete.create();
    try (writer) {
      for (Content content : contents) {
        for (long at : content.where(column, values)) {
          writer.write(one.set(content.file().location(), at));
        }
      }
    }
    table.newRowDelta().addDeletes(writer.toDeleteFile()).commit();
  }

  /** Writes the live rows of all files of a partition into one. */
  private static void compact(Table table) throws IOException {
    RewriteFiles rewrite = table.newRewrite();
    rewrite.validateFromSnapshot(table.currentSnapshot().snapshotId());
    List<Content> left = new ArrayList<>(contents(table));
    DeleteFileSet deletes = DeleteFileSet.create();
    List<DataFile> added = new ArrayList<>();
    while (!left.isEmpty()) {
      Content first = left.get(0);
      List<Content> group = left.stream().filter(other -> alike(first, other)).toList();
      left.removeAll(group);
      List<Record> rows = new ArrayList<>();
      for (Content content : group) {
        rows.addAll(content.live());
        rewrite.deleteFile(content.file());
        deletes.addAll(content.task().deletes());
      }
      if (!rows.isEmpty()) {
        added.add(write(table, first.file().partition(), first.task().spec(), rows));
      }
    }
    for (DeleteFile file : deletes) {
      rewrite.deleteFile(file);
    }
    added.forEach(rewrite::addFile);
    rewrite.dataSequenceNumber(table.currentSnapshot().sequenceNumber());
    rewrite.commit();
  }

  private static boolean alike(Content one, Content other) {
    PartitionSpec spec = one.task().spec();
    return spec.specId() == other.task().spec().specId()
        && spec.partitionToPath(one.file().partition())
            .equals(spec.partitionToPath(other.file().partition()));
  }

  private static Set<String> values(String[] words) {
    return new HashSet<>(Arrays.asList(words).subList(3, words.length));
  }

  private static void make(Table table, String[] words) throws IOException {
    switch (words[0]) {
      case "append" -> append(table, Arrays.asList(words).subList(2, words.length));
      case "delete" -> delete(table, words[2], values(words));
      case "delete-wide" -> deleteWide(table, words[2], values(words));
      case "compact" -> compact(table);
      default -> throw new IllegalArgumentException("append, delete or compact, not " + words[0]);
    }
  }

  /** Makes all commits, or fails with the library's own words. */
  public static void main(String[] arguments) throws Exception {
    RESTCatalog catalog = new RESTCatalog();
    catalog.initialize(
        "other", Map.of("uri", arguments[0], "io-impl", "org.apache.iceberg.hadoop.HadoopFileIO"));
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.split("\t", -1);
      for (int tries = 1; ; tries++) {
        try {
          Table table = catalog.loadTable(TableIdentifier.parse(words[1]));
          make(table, words);
          table.refresh();
          System.out.println(table.currentSnapshot().snapshotId() + " " + tries + " " + Instant.now());
          break;
        } catch (CommitFailedException | ValidationException faster) {
          if (tries == TRIES) {
            throw faster;
          }
        }
      }
    }
    catalog.close();
  }
}
