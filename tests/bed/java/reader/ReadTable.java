import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.IncrementalAppendScan;
import org.apache.iceberg.StaticTableOperations;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.data.parquet.GenericParquetReaders;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.ExpressionParser;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.parquet.Parquet;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/**
 * Reads a table with Iceberg's Java library, as an opinion that shares nothing with ours.
 *
 * <p>Each line of the standard input asks {@code METADATA_JSON TAB rows|files|appended:[SNAPSHOT] TAB
 * [FILTER_JSON]}: for the rows as {@code column=value} pairs, for each planned file with its partition,
 * counts and bounds, or for the rows that were appended after a snapshot, or ever, as an incremental
 * reader gets them. Fields are split by tabs; tabs, line ends and backslashes are escaped; an empty line ends
 * an answer.
 */
public final class ReadTable {
  private ReadTable() {}

  private static String escape(Object value) {
    if (value == null) {
      return "null";
    }
    String text = value.toString();
    if (value instanceof byte[] || value instanceof ByteBuffer) {
      ByteBuffer bytes =
          value instanceof ByteBuffer b ? b.duplicate() : ByteBuffer.wrap((byte[]) value);
      StringBuilder hex = new StringBuilder("0x");
      while (bytes.hasRemaining()) {
        hex.append(String.format("%02x", bytes.get()));
      }
      text = hex.toString();
    }
    return text.replace("\\", "\\\\")
        .replace("\t", "\\t")
        .replace("\n", "\\n")
        .replace("\r", "\\r");
  }

  private static void rows(Table table, Expression filter, PrintStream out) throws Exception {
    List<Types.NestedField> columns = table.schema().columns();
    try (CloseableIterable<Record> records = IcebergGenerics.read(table).where(filter).build()) {
      print(records, columns, out);
    }
  }

  private static void print(
      CloseableIterable<Record> records, List<Types.NestedField> columns, PrintStream out) {
    for (Record record : records) {
      StringJoiner line = new StringJoiner("\t");
      for (int i = 0; i < columns.size(); i++) {
        line.add(columns.get(i).name() + "=" + escape(record.get(i)));
      }
      out.println(line);
    }
  }

  /** Prints the rows of all files that appends after a snapshot added; without one, of all appends. */
  private static void appended(Table table, String after, PrintStream out) throws Exception {
    IncrementalAppendScan scan = table.newIncrementalAppendScan();
    if (!after.isEmpty()) {
      scan = scan.fromSnapshotExclusive(Long.parseLong(after));
    }
    scan = scan.toSnapshot(table.currentSnapshot().snapshotId());
    try (CloseableIterable<FileScanTask> tasks = scan.planFiles()) {
      for (FileScanTask task : tasks) {
        try (CloseableIterable<Record> records =
            Parquet.read(table.io().newInputFile(task.file().location()))
                .project(table.schema())
                .createReaderFunc(type -> GenericParquetReaders.buildReader(table.schema(), type))
                .build()) {
          print(records, table.schema().columns(), out);
        }
      }
    }
  }

  private static String bound(Type type, Map<Integer, ByteBuffer> bounds, int id) {
    ByteBuffer bytes = bounds == null ? null : bounds.get(id);
    if (bytes == null) {
      return "none";
    }
    Object value = Conversions.fromByteBuffer(type, bytes);
    return escape(value);
  }

  private static Object count(Map<Integer, Long> counts, int id) {
    return counts == null ? null : counts.get(id);
  }

  private static void files(Table table, Expression filter, PrintStream out) throws Exception {
    TableScan scan = table.newScan().includeColumnStats().filter(filter);
    List<String> lines = new ArrayList<>();
    try (CloseableIterable<FileScanTask> tasks = scan.planFiles()) {
      for (FileScanTask task : tasks) {
        DataFile file = task.file();
        StringJoiner line = new StringJoiner("\t");
        line.add("path=" + escape(file.location()));
        line.add("partition=" + escape(task.spec().partitionToPath(file.partition())));
        line.add("rows=" + file.recordCount());
        line.add("size=" + file.fileSizeInBytes());
        line.add("deletes=" + task.deletes().size());
        line.add("first_row_id=" + file.firstRowId());
        for (Types.NestedField field : table.schema().columns()) {
          if (!field.type().isPrimitiveType()) {
            continue;
          }
          int id = field.fieldId();
          line.add(field.name() + ".lower=" + bound(field.type(), file.lowerBounds(), id));
          line.add(field.name() + ".upper=" + bound(field.type(), file.upperBounds(), id));
          line.add(field.name() + ".values=" + count(file.valueCounts(), id));
          line.add(field.name() + ".nulls=" + count(file.nullValueCounts(), id));
          line.add(field.name() + ".nans=" + count(file.nanValueCounts(), id));
        }
        lines.add(line.toString());
      }
    }
    lines.stream().sorted().forEach(out::println);
  }

  private static void answer(String question, PrintStream out) throws Exception {
    String[] parts = question.split("\t", -1);
    HadoopFileIO io = new HadoopFileIO(new Configuration());
    Table table = new BaseTable(new StaticTableOperations(parts[0], io), parts[0]);
    Expression filter =
        parts[2].isEmpty()
            ? Expressions.alwaysTrue()
            : ExpressionParser.fromJson(parts[2], table.schema());
    String[] what = parts[1].split(":", 2);
    switch (what[0]) {
      case "rows" -> rows(table, filter, out);
      case "files" -> files(table, filter, out);
      case "appended" -> appended(table, what[1], out);
      default -> throw new IllegalArgumentException("rows, files or appended, not " + parts[1]);
    }
    out.println();
  }

  /** Answers all questions, or fails with the library's own words. */
  public static void main(String[] arguments) throws Exception {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    BufferedReader questions =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = questions.readLine(); line != null; line = questions.readLine()) {
      answer(line, out);
    }
    out.flush();
  }
}
