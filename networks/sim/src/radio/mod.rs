//! Shared media: cells whose stations take turns.

pub mod wimax;
