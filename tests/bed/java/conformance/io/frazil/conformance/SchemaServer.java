package io.frazil.conformance;

import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** A schema registry in this process, by the part of Confluent's interface that the sink asks for. */
final class SchemaServer {
  private final HttpServer server;
  private final String kind;
  private final Map<String, Integer> ids = new HashMap<>();
  private final Map<Integer, String> schemas = new HashMap<>();

  /** Begins to serve schemas of one kind: {@code AVRO}, {@code PROTOBUF} or {@code JSON}. */
  SchemaServer(String kind) throws IOException {
    this.kind = kind;
    server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.createContext("/schemas/", this::answer);
    server.start();
  }

  String url() {
    return "http://127.0.0.1:" + server.getAddress().getPort();
  }

  /** Returns the id of a schema. */
  synchronized int register(String schema) {
    return ids.computeIfAbsent(schema, text -> {
      schemas.put(schemas.size() + 1, text);
      return schemas.size();
    });
  }

  void stop() {
    server.stop(0);
  }

  private void answer(HttpExchange exchange) {
    String path = exchange.getRequestURI().getPath();
    String found = "/schemas/types".equals(path) ? "[\"" + kind + "\"]" : schema(path);
    String body = found != null ? found : "{\"error_code\":40403,\"message\":\"Schema not found\"}";
    byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
    try (exchange) {
      exchange.getResponseHeaders().add("Content-Type", "application/json");
      exchange.sendResponseHeaders(found != null ? 200 : 404, bytes.length);
      exchange.getResponseBody().write(bytes);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private synchronized String schema(String path) {
    String id = path.substring(path.lastIndexOf('/') + 1);
    String text = id.matches("\\d{1,9}") ? schemas.get(Integer.valueOf(id)) : null;
    if (text == null) {
      return null;
    }
    ObjectNode answer = Case.JSON.createObjectNode().put("schema", text);
    return answer.put("schemaType", kind).toString();
  }
}
