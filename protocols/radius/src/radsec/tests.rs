mod connections;
mod framer;
