"use strict";
let exports = null;
const ask = (request) => {
  const text = new TextEncoder().encode(JSON.stringify(request));
  const to = exports.usher_request(text.length);
  new Uint8Array(exports.memory.buffer, to, text.length).set(text);
  const from = exports.usher_answer();
  const answer = new Uint8Array(exports.memory.buffer, from, exports.usher_length());
  return JSON.parse(new TextDecoder().decode(answer));
};
const instance = async (packed) => {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const module = await WebAssembly.compile(await new Response(stream).arrayBuffer());
  // What nothing calls: the module asks neither for the time nor for anything else of its environment.
  const imports = {};
  for (const { module: from, name } of WebAssembly.Module.imports(module)) {
    imports[from] ??= {};
    imports[from][name] = () => {
      throw new Error(`the module calls ${name}, which a browser does not provide`);
    };
  }
  return (await WebAssembly.instantiate(module, imports)).exports;
};
onmessage = async ({ data }) => {
  try {
    if (data.module) {
      exports = await instance(data.module);
      postMessage(ask({ study: data.study }));
    } else {
      postMessage(ask({ run: data.run }));
    }
  } catch (error) {
    postMessage({ error: String(error) });
  }
};
